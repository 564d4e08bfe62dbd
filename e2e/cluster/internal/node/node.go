// Package node is the first process of a cluster: it furnishes the namespaces that it was started in, runs the
// Kubernetes components in them, and everything ends with it.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ramen.dev/e2e/cluster/internal/place"
)

// Addresses inside the cluster. Nothing outside can be meant by them: the network namespace has no way out.
const (
	NodeName    = "n1"
	NodeAddress = "10.0.0.1"
	ServiceNet  = "10.96.0.0/16"
	APIService  = "10.96.0.1" // the first of ServiceNet
	DNSService  = "10.96.0.10"
	PodNet      = "10.244.0.0/16"
	nodePodNet  = "10.244.0.0/24"
)

// File descriptors that `cluster up` hands over.
const (
	ProgressFD = 3 // pipe, one JSON Progress a line
	LockFD     = 4 // the cluster's lock
	ListenerFD = 5 // loopback listener of the namespace that `up` ran in
)

// Progress is what the first process tells `cluster up`.
type Progress struct {
	Step   string `json:"step,omitempty"`
	Millis int64  `json:"millis,omitempty"` // since the start
	Error  string `json:"error,omitempty"`
	Log    string `json:"log,omitempty"` // the log to look at for the error
	Done   bool   `json:"done,omitempty"`
}

// Main runs until it is told to end. It returns only when something is wrong at the start.
func Main(dir string) error {
	for _, fd := range []int{ProgressFD, LockFD, ListenerFD} {
		syscall.CloseOnExec(fd)
	}
	progress := reporter{start: time.Now(), pipe: json.NewEncoder(os.NewFile(ProgressFD, "progress"))}
	cluster := place.Cluster{Dir: dir}
	plan, err := cluster.Load()
	if err == nil {
		cluster.Name = plan.Name
		err = serve(cluster, plan, &progress)
	}
	if err != nil {
		progress.fail(err, "")
	}
	return err
}

type reporter struct {
	start time.Time
	pipe  *json.Encoder
}

// A start that nobody follows any more (`up` was killed) ends here, and everything with it.
func (r *reporter) send(p Progress) {
	if err := r.pipe.Encode(p); err != nil {
		fmt.Println("nobody follows the start:", err)
		os.Exit(1)
	}
}

func (r *reporter) step(format string, args ...any) {
	step := fmt.Sprintf(format, args...)
	millis := time.Since(r.start).Milliseconds()
	fmt.Printf("%6d ms %s\n", millis, step)
	r.send(Progress{Step: step, Millis: millis})
}

func (r *reporter) fail(err error, log string) {
	fmt.Println("failed:", err)
	r.send(Progress{Error: err.Error(), Log: log})
}

func serve(cluster place.Cluster, plan place.Plan, progress *reporter) error {
	// As PID 1 it gets no signal that it does not ask for; the end of this process is the end of the namespace.
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)

	if err := furnish(cluster, plan); err != nil {
		return err
	}
	progress.step("namespaces furnished")
	listener, err := net.FileListener(os.NewFile(ListenerFD, "listener"))
	if err != nil {
		return fmt.Errorf("the listener handed over: %w", err)
	}
	supervisor := newSupervisor(cluster.Path("log"))
	go forward(listener, fmt.Sprintf("127.0.0.1:%d", plan.Port))
	if err := control(cluster, plan, supervisor); err != nil {
		return err
	}
	go start(cluster, plan, supervisor, progress)
	<-ends
	return nil
}

// Starts the components in the order in which they can be of use, and reports.
func start(cluster place.Cluster, plan place.Plan, supervisor *supervisor, progress *reporter) {
	set := components(cluster, plan)
	run := func(names ...string) {
		for _, name := range names {
			supervisor.add(set[name])
		}
	}
	checks, err := newChecks(cluster, plan)
	if err != nil {
		progress.fail(err, "")
		return
	}
	wait := func(what, log string, limit time.Duration, check func(context.Context) error) bool {
		if err := until(limit, check); err != nil {
			progress.fail(fmt.Errorf("%s: not within %s: %w", what, limit, err), log)
			return false
		}
		progress.step("%s", what)
		return true
	}
	run("etcd", "kube-apiserver")
	if plan.Tier >= 3 {
		run("containerd")
	}
	if !wait("API server ready", "kube-apiserver", 2*time.Minute, checks.api) {
		return
	}
	run("kube-controller-manager")
	if plan.Tier >= 3 {
		run("kube-scheduler", "kubelet", "kube-proxy")
	}
	if !wait("default ServiceAccount made", "kube-controller-manager", time.Minute, checks.serviceAccount) {
		return
	}
	if plan.Tier >= 3 && !wait("node ready", "kubelet", 2*time.Minute, checks.node) {
		return
	}
	if plan.Tier >= 4 {
		run("kube-router")
		if !wait("network policies enforced", "kube-router", time.Minute, checks.router) {
			return
		}
	}
	progress.send(Progress{Done: true, Millis: time.Since(progress.start).Milliseconds()})
}

// Asks again and again, soon at first; gives the last answer when the time is up.
func until(limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
