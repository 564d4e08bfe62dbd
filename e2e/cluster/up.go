package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ramen.dev/e2e/cluster/internal/images"
	"ramen.dev/e2e/cluster/internal/node"
	"ramen.dev/e2e/cluster/internal/place"
)

func (a app) up(cluster place.Cluster, tier int) error {
	if tier < 2 || tier > 4 {
		return fmt.Errorf("there is no tier %d: %w", tier, errUsage)
	}
	if reason := hindrance(tier); reason != "" {
		return fmt.Errorf("tier %d can't run here: %s", tier, reason)
	}
	if err := a.setup(tier); err != nil {
		return err
	}
	lock, err := cluster.Lock()
	if errors.Is(err, place.ErrBusy) {
		return already(cluster, tier)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	plan := place.Plan{Name: cluster.Name, Dir: cluster.Dir, Tier: tier, UserNS: os.Geteuid() != 0}
	if plan.Kube, err = a.program("kube"); err != nil {
		return err
	}
	var archives []string
	if tier >= 3 {
		if archives, err = a.builder().Foundation(); err != nil {
			return err
		}
	}
	if tier >= 4 {
		folder, err := a.program("router")
		if err != nil {
			return err
		}
		plan.Router = filepath.Join(folder, "kube-router")
	}
	if err := a.launch(cluster, plan, lock, archives); err != nil {
		return err
	}
	fmt.Println(cluster.Kubeconfig())
	return nil
}

func already(cluster place.Cluster, tier int) error {
	plan, err := cluster.Load()
	if err != nil || !plan.Complete {
		return fmt.Errorf("%s: %w (cluster down ends what is left of a start that was cut off)", cluster.Name, place.ErrBusy)
	}
	if plan.Tier < tier {
		return fmt.Errorf("cluster %s runs with tier %d: end it first (cluster down), or take another --name", cluster.Name, plan.Tier)
	}
	say("%s runs already (tier %d)", cluster.Name, plan.Tier)
	fmt.Println(cluster.Kubeconfig())
	return nil
}

func (a app) launch(cluster place.Cluster, plan place.Plan, lock *os.File, archives []string) (err error) {
	plan.Started = time.Now()
	if err := os.RemoveAll(cluster.Dir); err != nil { // of one that ended without `down`
		return err
	}
	for _, folder := range []string{"config", "pki", "log", "etcd", "cni/config", "containerd", "kubelet"} {
		if err := os.MkdirAll(cluster.Path(folder), 0o700); err != nil {
			return err
		}
	}
	// The port is taken outside and used inside, too: one kubeconfig is good for both.
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer listener.Close()
	plan.Port = listener.Addr().(*net.TCPAddr).Port
	socket, err := listener.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := node.Configure(cluster); err != nil {
		return err
	}
	if err := node.Credentials(cluster, plan.Port); err != nil {
		return err
	}
	if err := cluster.Save(plan); err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	process, err := firstProcess(cluster, plan, []*os.File{writer, lock, socket})
	writer.Close()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = process.Kill()
			_, _ = process.Wait()
			_ = node.RemoveGroups(cluster.Name, 10*time.Second)
		}
	}()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	go func() {
		if _, open := <-interrupted; open {
			_ = process.Kill() // what waits below notices
		}
	}()
	plan.PID = process.Pid
	if err := cluster.Save(plan); err != nil {
		return err
	}
	imported := make(chan error, 1)
	go func() { imported <- load(cluster, archives) }()
	if err := follow(cluster, reader); err != nil {
		return err
	}
	if err := <-imported; err != nil {
		return err
	}
	plan.Complete = true
	if err := cluster.Save(plan); err != nil {
		return err
	}
	say("%s is up: tier %d after %.1f s", cluster.Name, plan.Tier, time.Since(plan.Started).Seconds())
	return process.Release()
}

// Starts this program anew as the first process of new namespaces. Without root, a user namespace gives the rights.
func firstProcess(cluster place.Cluster, plan place.Plan, files []*os.File) (*os.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(cluster.Path("log", "cluster.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(self, "first-process", cluster.Dir)
	command.Stdout, command.Stderr, command.ExtraFiles = log, log, files
	command.Dir = "/"
	command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8"}
	command.SysProcAttr = namespaces(plan.UserNS)
	if err := command.Start(); err != nil {
		if plan.UserNS {
			return nil, fmt.Errorf("no user namespace can be made here (run as root instead): %w", err)
		}
		return nil, fmt.Errorf("no namespaces can be made here: %w", err)
	}
	return command.Process, nil
}

// Shows what the first process reports, until it is done or fails.
func follow(cluster place.Cluster, reports *os.File) error {
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		var p node.Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return err
		}
		switch {
		case p.Error != "":
			if p.Log != "" {
				say("the last lines of %s:", cluster.Path("log", p.Log+".log"))
				tail(cluster.Path("log", p.Log+".log"), 15)
			}
			return errors.New(p.Error)
		case p.Done:
			return nil
		default:
			say("%5.1f s  %s", float64(p.Millis)/1000, p.Step)
		}
	}
	tail(cluster.Path("log", "cluster.log"), 15)
	return errors.New("the cluster's first process ended")
}

func tail(path string, count int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for _, line := range lines[max(0, len(lines)-count):] {
		fmt.Fprintln(os.Stderr, "  | "+line)
	}
}

// Imports images as soon as containerd answers, while the rest still starts.
func load(cluster place.Cluster, archives []string) error {
	if len(archives) == 0 {
		return nil
	}
	limit := time.Now().Add(time.Minute)
	for {
		if err := exec.Command("ctr", "--address", cluster.Containerd(), "version").Run(); err == nil {
			break
		} else if time.Now().After(limit) {
			return fmt.Errorf("containerd does not answer; see %s", cluster.Path("log", "containerd.log"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return images.Import(cluster, archives)
}

func (a app) down(cluster place.Cluster) error {
	if cluster.Alive() {
		plan, err := cluster.Load()
		if err != nil || plan.PID == 0 {
			return place.ErrBusy // it is being started: the other command cleans up
		}
		// The kernel ends every process of a PID namespace with its first one, and the mounts go with the last.
		if err := syscall.Kill(plan.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ending %s: %w", cluster.Name, err)
		}
		if err := gone(plan.PID, 30*time.Second); err != nil {
			return err
		}
	}
	lock, err := cluster.Lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(cluster.Dir); errors.Is(err, os.ErrNotExist) {
		say("%s does not run", cluster.Name)
		return nil
	}
	if os.Geteuid() == 0 {
		if err := node.RemoveGroups(cluster.Name, 10*time.Second); err != nil {
			say("left behind: %v", err)
		}
	}
	if err := os.RemoveAll(cluster.Dir); err != nil {
		return err
	}
	say("%s is down", cluster.Name)
	return os.Remove(cluster.Dir + ".lock")
}

func (a app) downAll() error {
	var faults []error
	for _, cluster := range a.cache.Clusters() {
		faults = append(faults, a.down(cluster))
	}
	return errors.Join(faults...)
}

// Waits until a process that is not our child has ended (one that nobody has waited for yet counts as ended).
func gone(pid int, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		// The last thread waits for the other processes of the namespace; before that the leader may look dead already.
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if len(threads) <= 1 && (strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")) {
			return nil
		}
	}
	return fmt.Errorf("process %d has not ended within %s", pid, limit)
}
