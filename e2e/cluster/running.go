package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"ramen.dev/e2e/cluster/internal/node"
	"ramen.dev/e2e/cluster/internal/place"
)

// The plan of a cluster that runs.
func running(cluster place.Cluster) (place.Plan, error) {
	if !cluster.Alive() {
		return place.Plan{}, fmt.Errorf("%s does not run (cluster up)", cluster.Name)
	}
	return cluster.Load()
}

// Asks the first process of a cluster.
func ask(cluster place.Cluster, method, path string) ([]byte, error) {
	client := http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", cluster.Control())
		}},
	}
	request, err := http.NewRequest(method, "http://cluster"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	return body, err
}

func (a app) status(cluster place.Cluster, asJSON bool) error {
	plan, err := running(cluster)
	if err != nil {
		return err
	}
	body, err := ask(cluster, http.MethodGet, "/status")
	if err != nil {
		return err
	}
	if asJSON {
		_, err = os.Stdout.Write(body)
		return err
	}
	var status node.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return err
	}
	fmt.Printf("%s: tier %d, up for %s, %d MiB in all\n", cluster.Name, status.Tier,
		time.Since(status.Started).Round(time.Second), status.TotalKiB>>10)
	fmt.Printf("KUBECONFIG=%s\n", cluster.Kubeconfig())
	fmt.Printf("API server https://127.0.0.1:%d, first process %d, logs in %s\n\n", plan.Port, plan.PID, cluster.Path("log"))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tMIB\tRESTARTS\tENDED LAST BY")
	for _, c := range status.Components {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\n", c.Name, c.State, c.PSSKiB>>10, c.Restarts, c.Last)
	}
	return table.Flush()
}

func (a app) order(cluster place.Cluster, order string, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("which component? %w", errUsage)
	}
	if _, err := running(cluster); err != nil {
		return err
	}
	_, err := ask(cluster, http.MethodPost, "/components/"+args[0]+"/"+order)
	return err
}

func (a app) logs(cluster place.Cluster, args []string) error {
	if len(args) != 1 || strings.Contains(args[0], "/") {
		return fmt.Errorf("which component? %w", errUsage)
	}
	log, err := os.Open(cluster.Path("log", args[0]+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = io.Copy(os.Stdout, log)
	return err
}

// Becomes kubectl or helm. The API server is reachable from outside, so nothing has to be entered: files, proxies and
// `port-forward` behave as they do with any cluster.
func (a app) tool(cluster place.Cluster, name string, args []string) error {
	if _, err := running(cluster); err != nil {
		return err
	}
	module := name
	if name == "kubectl" {
		module = "kube"
	}
	folder, err := a.program(module)
	if err != nil {
		return err
	}
	program := filepath.Join(folder, name)
	return syscall.Exec(program, append([]string{program}, args...), clusterEnvironment(cluster, 0))
}

// Becomes a command inside the namespaces, in the same folder.
func (a app) enter(cluster place.Cluster, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which command? %w", errUsage)
	}
	plan, err := running(cluster)
	if err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	words := []string{nsenter, "--target", fmt.Sprint(plan.PID), "--mount", "--net", "--pid", "--ipc", "--uts"}
	if plan.UserNS {
		words = append(words, "--user", "--preserve-credentials")
	}
	// The working folder does not survive a change of the mount namespace by itself.
	words = append(words, "--", "sh", "-c", `cd "$0" && exec "$@"`, folder)
	return syscall.Exec(nsenter, append(words, args...), clusterEnvironment(cluster, plan.Tier))
}

// What the tests find the cluster by.
func clusterEnvironment(cluster place.Cluster, tier int) []string {
	env := append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig())
	if tier > 0 {
		env = append(env, fmt.Sprintf("RAMEN_E2E_TIER=%d", tier), "RAMEN_CLUSTER="+cluster.Name, "RAMEN_CLUSTER_DIR="+cluster.Dir)
		if self, err := os.Executable(); err == nil {
			env = append(env, "RAMEN_CLUSTER_PROGRAM="+self)
		}
	}
	return env
}
