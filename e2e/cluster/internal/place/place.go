// Package place knows where the cluster's files are, and which clusters run.
package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Cache is `${RAMEN_CACHE:-~/.cache/ramen}/cluster`: everything that is built or written goes below it.
type Cache struct{ Root string }

// Open finds the cache.
func Open() (Cache, error) {
	root := os.Getenv("RAMEN_CACHE")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return Cache{}, fmt.Errorf("neither RAMEN_CACHE nor HOME is set: %w", err)
		}
		root = filepath.Join(home, ".cache", "ramen")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return Cache{}, err
	}
	return Cache{Root: filepath.Join(root, "cluster")}, nil
}

// Base is the cache of the whole project, of which the cluster's is one folder.
func (c Cache) Base() string { return filepath.Dir(c.Root) }

// Path is a path below the cache.
func (c Cache) Path(parts ...string) string {
	return filepath.Join(append([]string{c.Root}, parts...)...)
}

// Cluster is the place of the cluster of that name.
func (c Cache) Cluster(name string) (Cluster, error) {
	// The name becomes a folder, a control group and a part of socket paths, which have a limit of 108 bytes.
	if name == "" || len(name) > 20 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return Cluster{}, fmt.Errorf("cluster name %q: at most 20 of a-z, 0-9 and '-'", name)
	}
	return Cluster{Name: name, Dir: c.Path("run", name)}, nil
}

// Clusters lists every cluster that has a folder.
func (c Cache) Clusters() []Cluster {
	entries, _ := os.ReadDir(c.Path("run"))
	var found []Cluster
	for _, entry := range entries {
		if entry.IsDir() {
			found = append(found, Cluster{Name: entry.Name(), Dir: c.Path("run", entry.Name())})
		}
	}
	return found
}

// Cluster is the folder of one cluster.
type Cluster struct{ Name, Dir string }

// Path is a path below the cluster's folder.
func (c Cluster) Path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// Kubeconfig is the administrator's; it works inside the cluster's namespaces and outside.
func (c Cluster) Kubeconfig() string { return c.Path("kubeconfig") }

// Control is the socket of the cluster's first process.
func (c Cluster) Control() string { return c.Path("control.sock") }

// Containerd is the socket of its containerd.
func (c Cluster) Containerd() string { return c.Path("containerd", "containerd.sock") }

// Plan is everything that the first process of a cluster needs to know; it lies beside the cluster's other files.
type Plan struct {
	Name     string    `json:"name"`
	Dir      string    `json:"dir"`
	Tier     int       `json:"tier"`
	Port     int       `json:"port"` // of the API server, on loopback outside and on every address inside
	PID      int       `json:"pid"`  // of the first process, as seen from outside
	UserNS   bool      `json:"userNamespace"`
	Kube     string    `json:"kube"`   // folder of etcd, kube-apiserver, …
	Router   string    `json:"router"` // the program kube-router
	Started  time.Time `json:"started"`
	Complete bool      `json:"complete"` // everything was ready once
}

// Save writes the plan.
func (c Cluster) Save(plan Plan) error {
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return err
	}
	part := c.Path("plan.json.part")
	if err := os.WriteFile(part, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(part, c.Path("plan.json"))
}

// Load reads the plan.
func (c Cluster) Load() (Plan, error) {
	var plan Plan
	text, err := os.ReadFile(c.Path("plan.json"))
	if err != nil {
		return plan, err
	}
	return plan, json.Unmarshal(text, &plan)
}

// ErrBusy says that a cluster runs, or that another command starts or ends it just now.
var ErrBusy = errors.New("the cluster runs, or is being started or stopped")

// Lock takes the cluster's lock. The first process inherits it and holds it for as long as the cluster lives, so a
// recorded process id is valid exactly while the lock is held: no stale id is ever signalled.
func (c Cluster) Lock() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(c.Dir), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(c.Dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrBusy
		}
		return nil, err
	}
	return file, nil
}

// Alive says whether the cluster's lock is held.
func (c Cluster) Alive() bool {
	lock, err := c.Lock()
	if err == nil {
		lock.Close()
		return false
	}
	return errors.Is(err, ErrBusy)
}
