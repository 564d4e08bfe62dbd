package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ramen.dev/e2e/cluster/internal/place"
)

// Makes the namespaces habitable: mounts of its own, a network of its own.
func furnish(cluster place.Cluster, plan place.Plan) error {
	if err := mounts(cluster, plan); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	if plan.Tier >= 3 {
		return groups(plan.Name)
	}
	return nil
}

func mounts(cluster place.Cluster, plan place.Plan) error {
	// Nothing done here may be seen outside; inside, what the kubelet mounts must reach containerd.
	for _, flag := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", flag|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("mount propagation: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc of the new namespace: %w", err)
	}
	if plan.Tier < 3 {
		return nil
	}
	// Sockets of shims, network namespaces of pods, the lock of iptables: fixed paths, so a /run of its own.
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("/run: %w", err)
	}
	// Fixed paths as well, in programs that take no setting for them.
	for target, source := range map[string]string{
		"/var/log": "log/node", "/var/lib/kubelet": "kubelet", "/var/lib/cni": "cni/state",
	} {
		source = cluster.Path(source)
		for _, folder := range []string{source, target} {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return nil
}

// The node's address on a veth pair whose other end leads nowhere: no packet leaves, and the API server has an address
// that is not loopback, which it insists on.
func network() error {
	for _, line := range []string{
		"link set lo up",
		"link add node0 type veth peer name node0p",
		"link set node0 up",
		"link set node0p up",
		"addr add " + NodeAddress + "/24 dev node0",
		"route add default via 10.0.0.254 dev node0",
	} {
		output, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(output)))
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("forwarding: %w", err)
	}
	return nil
}

// A control group of the cluster's own: a kubelet removes what it does not know from its group, so two clusters (or
// another kubelet of the machine) must not share one.
func groups(name string) error {
	for _, group := range Groups(name) {
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		// Version 1 leaves these empty in a new group, and then nothing can be put into it.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(group), file))
			if err == nil {
				_ = os.WriteFile(filepath.Join(group, file), text, 0)
			}
		}
	}
	return nil
}

// GroupName is the cluster's control group below each hierarchy's root.
func GroupName(cluster string) string { return "/ramen-" + cluster }

// Groups lists the cluster's control groups: one per hierarchy of version 1, or the one of version 2.
func Groups(cluster string) []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		return []string{root + GroupName(cluster)}
	}
	var found []string
	entries, _ := os.ReadDir(root)
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(root, entry.Name(), "cgroup.procs")); err == nil && entry.IsDir() {
			found = append(found, filepath.Join(root, entry.Name())+GroupName(cluster))
		}
	}
	return found
}

// RemoveGroups removes the empty groups that a cluster leaves. A group whose last process has only just ended may be
// busy for a moment.
func RemoveGroups(cluster string, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := removeGroups(cluster)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func removeGroups(cluster string) error {
	var faults []error
	for _, group := range Groups(cluster) {
		var folders []string
		_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		for i := len(folders) - 1; i >= 0; i-- { // children before parents
			if err := syscall.Rmdir(folders[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				faults = append(faults, fmt.Errorf("%s: %w", folders[i], err))
			}
		}
	}
	return errors.Join(faults...)
}
