package images

import (
	"archive/tar"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ramen.dev/e2e/cluster/internal/oci"
	"ramen.dev/e2e/cluster/internal/place"
)

// What the base image is made of. A change here makes a new one.
const (
	suite    = "bookworm"
	packages = "ca-certificates,libpython3.11,libssl3,python3,zlib1g"
	passwd   = "ramen:x:65532:65532:ramen:/tmp:/usr/sbin/nologin\n"
	group    = "ramen:x:65532:\n"
	recipe   = "2" // raise it when the code below makes something else of the same words
)

// Places whose content no container needs.
var pruned = map[string]bool{
	"var/cache": true, "var/lib/apt/lists": true, "var/log": true, "usr/share/doc": true, "usr/share/man": true,
	"usr/share/locale": true, "usr/share/info": true, "debootstrap": true, "dev": true, "proc": true, "sys": true,
}

// Base is the lower layer of every image of ours: Debian with its Python.
type base struct {
	Layer  oci.Layer `json:"layer"`
	Python string    `json:"python"` // its version, in full
}

func ensureBase(cache place.Cache, say func(string, ...any)) (base, error) {
	key := sha256.Sum256([]byte(strings.Join([]string{suite, packages, passwd, group, recipe}, "\x00")))
	folder := cache.Path("images", "base-"+hex.EncodeToString(key[:])[:12])
	var made base
	if text, err := os.ReadFile(filepath.Join(folder, "base.json")); err == nil {
		return made, json.Unmarshal(text, &made)
	}
	say("base image: debootstrap of Debian %s with Python 3.11 (about a minute, once)", suite)
	start := time.Now()
	if err := os.MkdirAll(cache.Path("images"), 0o755); err != nil {
		return made, err
	}
	part, err := os.MkdirTemp(cache.Path("images"), ".part-")
	if err != nil {
		return made, err
	}
	defer os.RemoveAll(part)
	root := filepath.Join(part, "root")
	args := []string{"--variant=minbase", "--include=" + packages, suite, root}
	if mirror := os.Getenv("RAMEN_DEBIAN_MIRROR"); mirror != "" {
		args = append(args, mirror)
	}
	log := cache.Path("images", "debootstrap.log")
	command := exec.Command("debootstrap", args...)
	// In namespaces of its own: what it mounts, and any process that a package starts, ends with it.
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS,
	}
	command.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	output, err := command.CombinedOutput()
	if err != nil {
		_ = os.WriteFile(log, output, 0o644)
		return made, fmt.Errorf("debootstrap: %w; see %s", err, log)
	}
	version, err := exec.Command("chroot", root, "/usr/bin/python3.11", "-IS", "-c",
		"import platform; print(platform.python_version())").Output()
	if err != nil {
		return made, fmt.Errorf("the base's Python does not run: %w", err)
	}
	made.Python = strings.TrimSpace(string(version))
	for file, line := range map[string]string{"etc/passwd": passwd, "etc/group": group} {
		if err := appendTo(filepath.Join(root, file), line); err != nil {
			return made, err
		}
	}
	made.Layer, err = oci.WriteLayer(filepath.Join(part, "layer.tar.gz"), func(archive *tar.Writer) error {
		if err := oci.AddTree(archive, root, func(name string) bool { return pruned[name] }); err != nil {
			return err
		}
		return oci.AddFolders(archive, "dev", "proc", "sys", "var/cache", "var/log")
	})
	if err != nil {
		return made, err
	}
	if err := os.RemoveAll(root); err != nil {
		return made, err
	}
	made.Layer.File = filepath.Join(folder, "layer.tar.gz")
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return made, err
	}
	if err := os.WriteFile(filepath.Join(part, "base.json"), text, 0o644); err != nil {
		return made, err
	}
	if err := os.Rename(part, folder); err != nil {
		if text, gone := os.ReadFile(filepath.Join(folder, "base.json")); gone == nil { // another run was quicker
			return made, json.Unmarshal(text, &made)
		}
		return made, err
	}
	say("base image: made in %s, %d MB", time.Since(start).Round(time.Second), made.Layer.Size>>20)
	return made, nil
}

func appendTo(path, line string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(line)
	return err
}

//go:embed pause/pause.c
var pauseSource []byte

// EnsurePause makes the image that holds the namespaces of pods.
func ensurePause(cache place.Cache, name string) (string, error) {
	key := sha256.Sum256(append(pauseSource, name...))
	image := cache.Path("images", "pause-"+hex.EncodeToString(key[:])[:12]+".tar")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := os.MkdirAll(cache.Path("images"), 0o755); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(cache.Path("images"), ".part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	program := filepath.Join(part, "pause")
	command := exec.Command("cc", "-x", "c", "-Os", "-static", "-s", "-o", program, "-")
	command.Stdin = strings.NewReader(string(pauseSource))
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the pause program: %w: %s", err, output)
	}
	layer, err := oci.WriteLayer(filepath.Join(part, "layer"), func(archive *tar.Writer) error {
		return oci.AddFiles(archive, []oci.File{{From: program, To: "/pause", Mode: 0o755}})
	})
	if err != nil {
		return "", err
	}
	return image, oci.Write(image, name, oci.Config{User: "65535:65535", Entrypoint: []string{"/pause"}}, []oci.Layer{layer})
}
