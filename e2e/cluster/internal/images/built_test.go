package images

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ramen.dev/e2e/cluster/internal/oci"
	"ramen.dev/e2e/cluster/internal/place"
)

// What installing packages leaves, and what a builder puts there for its containers.
var kept = []string{"var/lib/apt", "var/lib/dpkg", "var/cache", "var/log", "run", "tmp", "dev", "proc", "sys", "etc/hosts"}

// Every file of an archive that is one of a layer, by its path.
func files(t *testing.T, from io.Reader, into map[string]*tar.Header) {
	t.Helper()
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Trim(path.Clean(header.Name), "/")
		if folder, gone := path.Split(name); strings.HasPrefix(gone, ".wh.") {
			maps.DeleteFunc(into, func(known string, _ *tar.Header) bool {
				hidden := folder + strings.TrimPrefix(gone, ".wh.")
				return known == hidden || strings.HasPrefix(known, hidden+"/")
			})
			continue
		}
		if header.Typeflag != tar.TypeDir {
			into[name] = header
		}
	}
}

// An archive as `buildah push docker-archive:…` writes it: what a container starts with, and its files.
func unpack(t *testing.T, archive string) (oci.Config, map[string]*tar.Header) {
	t.Helper()
	open := func(wanted string) io.Reader {
		file, err := os.Open(archive)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		entries := tar.NewReader(file)
		for {
			header, err := entries.Next()
			if err != nil {
				t.Fatalf("%s in %s: %v", wanted, archive, err)
			}
			if header.Name == wanted && header.Typeflag == tar.TypeSymlink {
				t.Fatalf("%s in %s is a link", wanted, archive)
			}
			if header.Name == wanted {
				return entries
			}
		}
	}
	read := func(name string, into any) {
		if err := json.NewDecoder(open(name)).Decode(into); err != nil {
			t.Fatalf("%s in %s: %v", name, archive, err)
		}
	}
	var manifests []struct {
		Config string
		Layers []string
	}
	read("manifest.json", &manifests)
	var image struct{ Config oci.Config }
	read(manifests[0].Config, &image)
	all := map[string]*tar.Header{}
	for _, layer := range manifests[0].Layers {
		files(t, open(layer), all)
	}
	return image.Config, all
}

// Leaves a test out. `go test` tells that to nobody, so it is written to where scripts/lanes.sh reads it (tests/skip).
func leaveOut(t *testing.T, why string) {
	t.Helper()
	if name := os.Getenv("RAMEN_SKIPPED"); name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := fmt.Fprintf(file, "SKIPPED %s: %s\n", t.Name(), why); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip(why)
}

// `make images` has built them, on the base of the images that tests use otherwise.
func TestBuiltImagesHoldWhatTheTestedOnesDo(t *testing.T) {
	folder := os.Getenv("RAMEN_IMAGES")
	if folder == "" {
		leaveOut(t, "no images were built: make images")
	}
	cache, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	base, err := ensureBase(cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := os.Open(base.Layer.File)
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	plain, err := gzip.NewReader(layer)
	if err != nil {
		t.Fatal(err)
	}
	below := map[string]*tar.Header{}
	files(t, plain, below)
	specs, err := ReadSpecs("../../../../images")
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		t.Run(spec.File, func(t *testing.T) {
			config, there := unpack(t, filepath.Join(folder, spec.File+".tar"))
			wanted := maps.Clone(below)
			for to := range spec.Files {
				name := strings.TrimPrefix(to, "/")
				wanted[name] = nil
				file := there[name]
				if file == nil {
					t.Errorf("%s is not in it", to)
				} else if file.Typeflag != tar.TypeReg || file.Mode&0o7777 != 0o755 || file.Uid != 0 || file.Gid != 0 {
					t.Errorf("%s has the mode %o and belongs to %d:%d", to, file.Mode, file.Uid, file.Gid)
				}
			}
			bookkeeping := func(name string, _ *tar.Header) bool {
				return slices.ContainsFunc(kept, func(place string) bool { return name == place || strings.HasPrefix(name, place+"/") })
			}
			maps.DeleteFunc(wanted, bookkeeping)
			maps.DeleteFunc(there, bookkeeping)
			for _, name := range slices.Sorted(maps.Keys(wanted)) {
				if _, found := there[name]; !found {
					t.Errorf("only the tested image has /%s", name)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(there)) {
				if _, found := wanted[name]; !found {
					t.Errorf("only the built image has /%s", name)
				}
				if there[name].Uid == 65532 {
					t.Errorf("/%s belongs to the user that it runs as", name)
				}
			}
			same := func(what string, built, tested []string) {
				if !slices.Equal(built, tested) {
					t.Errorf("%s: the built image has %q, the tested one %q", what, built, tested)
				}
			}
			same("user", []string{config.User, config.WorkingDir}, []string{spec.User, spec.Workdir})
			same("env", config.Env, spec.Env)
			same("entrypoint", config.Entrypoint, spec.Entrypoint)
			same("cmd", config.Cmd, spec.Cmd)
			same("ports", slices.Sorted(maps.Keys(config.ExposedPorts)), spec.Ports)
		})
	}
}
