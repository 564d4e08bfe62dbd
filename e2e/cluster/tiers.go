package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"ramen.dev/e2e/cluster/internal/node"
)

// What stands in the way of a tier, or "". Whether a machine lets us is not to be read anywhere, so it is tried.
func hindrance(tier int) string {
	if tier < 3 {
		return refusal("true", "no namespaces can be made here")
	}
	if os.Geteuid() != 0 {
		return "containers need root"
	}
	filesystems, _ := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(filesystems), "\toverlay\n") {
		return "this kernel has no overlay file system"
	}
	groups := node.Groups("probe")
	if len(groups) == 0 {
		return "no control groups are mounted at /sys/fs/cgroup"
	}
	for _, group := range groups {
		if err := os.Mkdir(group, 0o755); err != nil && !os.IsExist(err) {
			return fmt.Sprintf("no control group can be made here: %v", err)
		}
		_ = os.Remove(group)
	}
	return refusal(mounts, "no container can be mounted here")
}

// What containerd does for each container.
const mounts = `set -e
mount --make-rprivate /
mount -t tmpfs probe /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged
mount -t overlay probe -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged
mount -t proc probe /proc`

// Runs a script in namespaces such as a cluster has; "" when it ends well.
func refusal(script, words string) string {
	command := exec.Command("/bin/sh", "-c", script)
	command.SysProcAttr = namespaces(os.Geteuid() != 0)
	output, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	return strings.TrimSpace(fmt.Sprintf("%s: %v %s", words, err, first))
}

// Namespaces of a process's own; without root also one of users, in which it is root.
func namespaces(users bool) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if users {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attributes
}
