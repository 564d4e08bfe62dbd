// Command cluster builds and runs a real Kubernetes on one machine, for tests: no registry, no virtual machine, no
// container engine. It is started through the script `cluster` beside this file.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"ramen.dev/e2e/cluster/internal/build"
	"ramen.dev/e2e/cluster/internal/images"
	"ramen.dev/e2e/cluster/internal/node"
	"ramen.dev/e2e/cluster/internal/place"
)

const usage = `A real Kubernetes on this machine, built from Go modules, for tests.

usage: cluster COMMAND [--name NAME] [flags]

  build [kube|helm|router|judge]… build the programs (once per change; 'up' does it too)
  up [--tier 2|3|4]           start, wait until everything is ready, print the path of the kubeconfig
  down [--all]                end it and remove every trace
  status [--json]             components, memory, addresses
  base                        make the image below all of ours, print its archive
  images [worker|operator]…   build the images of our programs and load them into the running cluster; with RAMEN_IMAGES
                              the archives in that folder (see 'make images')
  tiers                       what this machine can run, and why not more

  kubectl ARGS…               kubectl as the administrator
  helm ARGS…                  helm as the administrator
  exec -- COMMAND ARGS…       run a command inside the cluster's namespaces: it reaches pods and Services by address
  logs COMPONENT              the log of a component
  stop|start|kill|freeze|thaw COMPONENT
                              drills: 'stop' kills and keeps down, 'kill' kills and lets it come back

tiers: 2 = etcd, API server, controller manager (no root needed)   3 = + scheduler, kubelet, containerd, kube-proxy
       4 = + kube-router, which enforces network policies
Files are in ${RAMEN_CACHE:-~/.cache/ramen}/cluster. --name lets several clusters run side by side (default: test).
`

type app struct {
	cache   place.Cache
	sources string // the folder e2e/cluster
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "first-process" { // started by `up`, inside the namespaces
		if err := node.Main(os.Args[2]); err != nil {
			os.Exit(1)
		}
		return
	}
	if err := run(os.Args[1:]); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "cluster:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("see cluster --help")

func run(args []string) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		fmt.Print(usage)
		return nil
	}
	cache, err := place.Open()
	if err != nil {
		return err
	}
	a := app{cache: cache, sources: os.Getenv("RAMEN_CLUSTER_SOURCES")}
	if a.sources == "" {
		return errors.New("start me through the script e2e/cluster/cluster")
	}

	word, args := args[0], args[1:]
	flags := flag.NewFlagSet(word, flag.ContinueOnError)
	flags.Usage = func() { fmt.Print(usage) }
	name := flags.String("name", environment("RAMEN_CLUSTER", "test"), "which cluster")
	tier, all, asJSON := 4, false, false
	switch word {
	case "up":
		flags.IntVar(&tier, "tier", 4, "2, 3 or 4")
	case "down":
		flags.BoolVar(&all, "all", false, "every cluster")
	case "status":
		flags.BoolVar(&asJSON, "json", false, "for programs")
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errUsage
	}
	rest := flags.Args()
	cluster, err := cache.Cluster(*name)
	if err != nil {
		return err
	}
	switch word {
	case "build":
		return a.build(rest)
	case "up":
		return a.up(cluster, tier)
	case "down":
		if all {
			return a.downAll()
		}
		return a.down(cluster)
	case "status":
		return a.status(cluster, asJSON)
	case "base":
		archive, err := a.builder().Base()
		if err == nil {
			fmt.Println(archive)
		}
		return err
	case "images":
		return a.images(cluster, rest)
	case "tiers":
		return a.tiers()
	case "kubectl", "helm":
		return a.tool(cluster, word, rest)
	case "exec":
		return a.enter(cluster, rest)
	case "logs":
		return a.logs(cluster, rest)
	case "stop", "start", "kill", "freeze", "thaw":
		return a.order(cluster, word, rest)
	}
	return fmt.Errorf("unknown command %q: %w", word, errUsage)
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...) }

func (a app) build(names []string) error {
	if len(names) == 0 {
		for _, program := range build.Programs {
			names = append(names, program.Name)
		}
	}
	for _, name := range names {
		folder, err := a.program(name)
		if err != nil {
			return err
		}
		fmt.Println(folder)
	}
	return nil
}

// The folder of a built program.
func (a app) program(name string) (string, error) {
	program, err := build.Named(name)
	if err != nil {
		return "", err
	}
	return program.Ensure(a.sources, a.cache, say)
}

func (a app) builder() images.Builder {
	top := filepath.Dir(filepath.Dir(a.sources))
	target := environment("CARGO_TARGET_DIR", filepath.Join(top, "target"))
	return images.Builder{
		Cache: a.cache, Sources: filepath.Join(top, "images"), Say: say,
		Bin:   environment("RAMEN_BIN_DIR", filepath.Join(target, "debug")),
		UV:    environment("RAMEN_UV", filepath.Join(a.cache.Base(), "venv", "bin", "uv")),
		Built: os.Getenv("RAMEN_IMAGES"),
	}
}

func (a app) images(cluster place.Cluster, names []string) error {
	if err := a.setup(3); err != nil {
		return err
	}
	archives, err := a.builder().Ours(names)
	if err != nil {
		return err
	}
	if plan, err := cluster.Load(); err == nil && cluster.Alive() && plan.Tier >= 3 {
		if err := images.Import(cluster, archives); err != nil {
			return err
		}
		say("loaded %d images into %s", len(archives), cluster.Name)
	}
	for _, archive := range archives {
		fmt.Println(archive)
	}
	return nil
}

// Installs what a tier needs from the system, or says what is missing.
func (a app) setup(tier int) error {
	command := exec.Command(filepath.Join(a.sources, "setup.sh"), fmt.Sprint(tier))
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("tier %d can't run here: %w", tier, err)
	}
	return nil
}

func (a app) tiers() error {
	for tier := 2; tier <= 4; tier++ {
		if reason := hindrance(tier); reason != "" {
			fmt.Printf("%d no %s\n", tier, reason)
		} else {
			fmt.Printf("%d yes\n", tier)
		}
	}
	return nil
}
