package images

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ramen.dev/e2e/cluster/internal/node"
	"ramen.dev/e2e/cluster/internal/oci"
	"ramen.dev/e2e/cluster/internal/place"
)

// BaseName is the base as an image of its own: a Debian with Python 3.11, for clients and servers of the tests.
const BaseName = "localhost/ramen-base:dev"

// Where Debian's Python is. A host built for another one does not find its library in the image.
const python = "/usr/bin/python3.11"

// Builder makes images.
type Builder struct {
	Cache   place.Cache
	Sources string // the folder that holds NAME.json
	Bin     string // where our programs are
	UV      string
	Built   string // when set: the folder of archives that were built by the Containerfiles, and nothing is made
	Say     func(string, ...any)
}

// Foundation makes what every cluster of tier 3 needs, and gives the archives.
func (b Builder) Foundation() ([]string, error) {
	pause, err := ensurePause(b.Cache, node.PauseImage)
	if err != nil {
		return nil, err
	}
	base, err := b.Base()
	if err != nil {
		return nil, err
	}
	return []string{pause, base}, nil
}

// Base makes the archive of the image below all of ours.
func (b Builder) Base() (string, error) {
	base, err := ensureBase(b.Cache, b.Say)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(filepath.Dir(base.Layer.File), "image.tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	config := oci.Config{
		User: "65532:65532", WorkingDir: "/",
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp"},
		Entrypoint: []string{python},
	}
	return archive, oci.Write(archive, BaseName, config, []oci.Layer{base.Layer})
}

// Ours makes the images of our programs. One whose programs are not built yet is named and left out, unless it is
// asked for by name.
func (b Builder) Ours(only []string) ([]string, error) {
	specs, err := ReadSpecs(b.Sources)
	if err != nil {
		return nil, err
	}
	of := func(spec Spec) (string, error) {
		archive := filepath.Join(b.Built, spec.File+".tar")
		_, err := os.Stat(archive)
		return archive, err
	}
	if b.Built == "" {
		base, err := ensureBase(b.Cache, b.Say)
		if err != nil {
			return nil, err
		}
		of = func(spec Spec) (string, error) { return b.ours(spec, base) }
	}
	wanted := map[string]bool{}
	for _, name := range only {
		wanted[name] = true
	}
	var archives []string
	for _, spec := range specs {
		if len(only) > 0 && !wanted[spec.File] {
			continue
		}
		delete(wanted, spec.File)
		archive, err := of(spec)
		if errors.Is(err, fs.ErrNotExist) && len(only) == 0 {
			b.Say("%s: left out (%v); build it with: %s", spec.Name, err, spec.Make)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec.Name, err)
		}
		archives = append(archives, archive)
	}
	for name := range wanted {
		return nil, fmt.Errorf("no image is named %q", name)
	}
	return archives, nil
}

func (b Builder) ours(spec Spec, base base) (string, error) {
	places := strings.NewReplacer("{bin}", b.Bin, "{uv}", b.UV)
	var files []oci.File
	for to, from := range spec.Files {
		file := oci.File{From: places.Replace(from), To: to, Mode: 0o755}
		if _, err := os.Stat(file.From); err != nil {
			return "", err
		}
		if strings.HasPrefix(filepath.Base(to), "ramen-host-") {
			if err := fits(file.From, base); err != nil {
				return "", err
			}
		}
		files = append(files, file)
	}
	part, err := os.MkdirTemp(b.Cache.Path("images"), ".part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	top, err := oci.WriteLayer(filepath.Join(part, "layer"), func(archive *tar.Writer) error {
		return oci.AddFiles(archive, files)
	})
	if err != nil {
		return "", err
	}
	config := oci.Config{
		User: spec.User, WorkingDir: spec.Workdir, Env: spec.Env, Entrypoint: spec.Entrypoint, Cmd: spec.Cmd,
		ExposedPorts: map[string]struct{}{},
	}
	for _, port := range spec.Ports {
		config.ExposedPorts[port] = struct{}{}
	}
	archive := b.Cache.Path("images", spec.File+".tar")
	if err := oci.Write(archive, spec.Name, config, []oci.Layer{base.Layer, top}); err != nil {
		return "", err
	}
	b.Say("%s: %d MB above the base", spec.Name, top.Size>>20)
	return archive, nil
}

// A host says which Python it was built for; only the very one of the base will do.
func fits(host string, base base) error {
	output, err := exec.Command(host, "--describe").Output()
	if err != nil {
		return fmt.Errorf("%s does not describe itself: %w", host, err)
	}
	var described struct{ Version, Executable string }
	if err := json.Unmarshal(output, &described); err != nil {
		return fmt.Errorf("%s describes itself with no JSON: %w", host, err)
	}
	if described.Executable != python || described.Version != base.Python {
		return fmt.Errorf("%s is for Python %s at %s, the image has %s at %s; build it with: cargo xtask hosts --python %s",
			host, described.Version, described.Executable, base.Python, python, python)
	}
	return nil
}

// Import puts image archives into the containerd of a running cluster.
func Import(cluster place.Cluster, archives []string) error {
	for _, archive := range archives {
		output, err := exec.Command("ctr", "--address", cluster.Containerd(), "--namespace", "k8s.io",
			"images", "import", archive).CombinedOutput()
		if err != nil {
			return fmt.Errorf("importing %s: %w: %s", archive, err, strings.TrimSpace(string(output)))
		}
	}
	return nil
}
