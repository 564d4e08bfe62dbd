package oci

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func entries(t *testing.T, from io.Reader) (map[string]*tar.Header, map[string]string) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string]string{}
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name], contents[header.Name] = header, string(content)
	}
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestAnImageNamesItsBlobsByTheirDigests(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/program", "content", 0o700)
	layer, err := WriteLayer(dir+"/layer", func(archive *tar.Writer) error {
		return AddFiles(archive, []File{{From: dir + "/program", To: "/usr/bin/program", Mode: 0o755}})
	})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{User: "65532:65532", Entrypoint: []string{"/usr/bin/program"}}
	if err := Write(dir+"/image.tar", "localhost/some/image:dev", config, []Layer{layer}); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(dir + "/image.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, contents := entries(t, file)
	for name, content := range contents {
		if digest, is := strings.CutPrefix(name, "blobs/sha256/"); is && digestOf([]byte(content)) != "sha256:"+digest {
			t.Errorf("%s has the digest %s", name, digestOf([]byte(content)))
		}
	}
	read := func(digest string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(contents["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")]), into); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal([]byte(contents["index.json"]), &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "localhost/some/image:dev" {
		t.Errorf("name %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0].Digest, &manifest)
	if manifest.Layers[0].Digest != layer.Digest {
		t.Error("the manifest names another layer")
	}
	var image struct {
		Config Config
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(manifest.Config.Digest, &image)
	if image.Config.User != "65532:65532" || image.RootFS.DiffIDs[0] != layer.DiffID {
		t.Errorf("config %+v", image)
	}
}

func TestTheSameFilesGiveTheSameLayer(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "1", 0o600)
	write(t, dir+"/b", "2", 0o644)
	layer := func(name string, files ...File) Layer {
		layer, err := WriteLayer(filepath.Join(dir, name), func(archive *tar.Writer) error { return AddFiles(archive, files) })
		if err != nil {
			t.Fatal(err)
		}
		return layer
	}
	a, b := File{dir + "/a", "/opt/a", 0o755}, File{dir + "/b", "/usr/b", 0o644}
	first := layer("first", a, b)
	if second := layer("second", b, a); first.Digest != second.Digest {
		t.Error("the order of the list shows in the layer")
	}
	file, err := os.Open(first.File)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := entries(t, plain)
	if header := headers["opt/a"]; header == nil || header.Mode != 0o755 || header.Uid != 0 {
		t.Errorf("opt/a is %+v", header)
	}
	if headers["usr/"] == nil {
		t.Error("no folder above usr/b")
	}
}

func TestATreeKeepsLinksAndLeavesOutWhatIsSkipped(t *testing.T) {
	dir := t.TempDir()
	root := dir + "/root"
	write(t, root+"/usr/bin/one", "program", 0o755)
	write(t, root+"/var/cache/big", "x", 0o644)
	if err := os.Link(root+"/usr/bin/one", root+"/usr/bin/two"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin", root+"/bin"); err != nil {
		t.Fatal(err)
	}
	var layer strings.Builder
	archive := tar.NewWriter(&layer)
	if err := AddTree(archive, root, func(name string) bool { return name == "var/cache" }); err != nil {
		t.Fatal(err)
	}
	archive.Close()
	headers, contents := entries(t, strings.NewReader(layer.String()))
	if headers["bin"].Linkname != "usr/bin" || headers["usr/bin/two"].Linkname != "usr/bin/one" {
		t.Error("a link lost its target")
	}
	if contents["usr/bin/one"] != "program" || headers["var/cache/big"] != nil || headers["var/"] == nil {
		t.Errorf("wrong entries: %v", contents)
	}
}

func TestAnUncleanPathIsRefused(t *testing.T) {
	archive := tar.NewWriter(io.Discard)
	for _, path := range []string{"relative", "/a/../b", "/a//b"} {
		if AddFiles(archive, []File{{From: "/dev/null", To: path}}) == nil {
			t.Errorf("%q was accepted", path)
		}
	}
}
