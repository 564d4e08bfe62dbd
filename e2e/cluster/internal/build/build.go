// Package build compiles the programs of the cluster from their Go modules, once per change, into the cache.
package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ramen.dev/e2e/cluster/internal/place"
)

// How many builds of one program stay in the cache: a running cluster may use an older one.
const keep = 3

// Program is one Go module below e2e/cluster and what to make of it.
type Program struct {
	Name    string // the module's folder, and the word on the command line
	File    string // the program
	Package string // what to build
	Links   []string
	Version func(goMod string) []string // linker settings that make the program name its true version
	Note    string
}

// Programs is all there is to build.
var Programs = []Program{
	{
		Name: "kube", File: "kube", Package: ".", Version: kubeVersion,
		Links: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"},
		Note:  "etcd, the Kubernetes components and kubectl: about 10 minutes on 2 cores and 4 GB of Go caches the first time",
	},
	{
		Name: "helm", File: "helm", Package: "helm.sh/helm/v3/cmd/helm", Version: helmVersion,
		Note: "about 3 minutes the first time",
	},
	{
		Name: "router", File: "kube-router", Package: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", Version: routerVersion,
		Note: "enforces network policies: about 4 minutes the first time",
	},
	{
		Name: "judge", File: "judge", Package: ".", Version: func(string) []string { return nil },
		Note: "kstatus and Flux's health checks: about 2 minutes the first time",
	},
}

// Named finds a program.
func Named(name string) (Program, error) {
	for _, program := range Programs {
		if program.Name == name {
			return program, nil
		}
	}
	return Program{}, fmt.Errorf("nothing named %q is built here", name)
}

// Ensure returns the folder that holds the program, building it when no build of the same sources is in the cache.
func (p Program) Ensure(sources string, cache place.Cache, say func(string, ...any)) (string, error) {
	module := filepath.Join(sources, p.Name)
	flags, err := p.flags(module)
	if err != nil {
		return "", err
	}
	key, err := key(module, flags)
	if err != nil {
		return "", err
	}
	home := cache.Path("programs", p.Name)
	folder := filepath.Join(home, key)
	if built(folder, p.File) {
		return folder, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	// Who comes second waits and finds it: two such builds at once take more than twice as long as one.
	lock, err := os.OpenFile(filepath.Join(home, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if built(folder, p.File) {
		return folder, nil
	}
	say("building %s (%s)", p.File, p.Note)
	start := time.Now()
	part, err := os.MkdirTemp(home, ".part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if err := os.Chmod(part, 0o755); err != nil {
		return "", err
	}
	args := append([]string{"build"}, flags...)
	command := exec.Command("go", append(args, "-o", filepath.Join(part, p.File), p.Package)...)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -mod=readonly -modcacherw", "GOWORK=off")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", p.File, err)
	}
	for _, link := range p.Links {
		if err := os.Symlink(p.File, filepath.Join(part, link)); err != nil {
			return "", err
		}
	}
	if err := os.Rename(part, folder); err != nil {
		return "", err
	}
	say("built %s in %s", p.File, time.Since(start).Round(time.Second))
	prune(home)
	return folder, nil
}

func built(folder, file string) bool {
	if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(folder, now, now) // the most recently used ones are kept
	return true
}

func (p Program) flags(module string) ([]string, error) {
	goMod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	ldflags := []string{"-s", "-w"}
	for _, setting := range p.Version(string(goMod)) {
		ldflags = append(ldflags, "-X", setting)
	}
	return []string{"-trimpath", "-ldflags=" + strings.Join(ldflags, " ")}, nil
}

// The module versions in go.sum decide what is built; the compiler's and the flags belong to the key as well.
func key(module string, flags []string) (string, error) {
	version, err := exec.Command("go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("no usable Go (1.26 or newer is needed): %w", err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s%q", version, flags)
	files, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	for _, name := range append(files, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")) {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "\n%s\n", filepath.Base(name))
		_, err = io.Copy(hash, file)
		file.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func prune(home string) {
	type build struct {
		path string
		used time.Time
	}
	var builds []build
	entries, _ := os.ReadDir(home)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			builds = append(builds, build{filepath.Join(home, entry.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(builds, func(a, b build) int { return b.used.Compare(a.used) })
	for _, old := range builds[min(keep, len(builds)):] {
		_ = os.RemoveAll(old.path)
	}
}

// Without these the server says v0.0.0, and the `kubeVersion` gates of charts fail.
func kubeVersion(goMod string) []string {
	version := required(goMod, "k8s.io/kubernetes")
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var settings []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		settings = append(settings, pkg+".gitVersion="+version, pkg+".gitMajor="+major, pkg+".gitMinor="+minor)
	}
	return settings
}

func helmVersion(goMod string) []string {
	settings := []string{"helm.sh/helm/v3/internal/version.version=" + required(goMod, "helm.sh/helm/v3")}
	// `helm template` and `helm lint` believe in the Kubernetes that helm was made for: client-go 0.X is Kubernetes 1.X.
	minor := strings.Split(required(goMod, "k8s.io/client-go"), ".")
	if len(minor) > 1 {
		for _, pkg := range []string{"helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"} {
			settings = append(settings, pkg+".k8sVersionMajor=1", pkg+".k8sVersionMinor="+minor[1])
		}
	}
	return settings
}

func routerVersion(goMod string) []string {
	const module = "github.com/cloudnativelabs/kube-router/v2"
	return []string{module + "/pkg/version.Version=" + required(goMod, module)}
}

// The version that a go.mod asks for.
func required(goMod, module string) string {
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1]
		}
	}
	return ""
}
