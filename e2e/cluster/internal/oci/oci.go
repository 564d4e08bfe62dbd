// Package oci writes container images as OCI layout archives, which containerd imports without any registry.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Layer is a gzip-compressed tar archive on disk.
type Layer struct {
	File   string `json:"file"`
	Digest string `json:"digest"` // of the compressed file
	DiffID string `json:"diffID"` // of the archive in it
	Size   int64  `json:"size"`
}

// Config is what a container of the image starts with.
type Config struct {
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
}

// WriteLayer makes a layer file of what fill puts into the archive.
func WriteLayer(path string, fill func(*tar.Writer) error) (Layer, error) {
	file, err := os.Create(path)
	if err != nil {
		return Layer{}, err
	}
	defer file.Close()
	packed, plain := sha256.New(), sha256.New()
	count := &counter{}
	// Images of a test cluster are unpacked once and on this machine: speed counts, not size.
	zip, err := gzip.NewWriterLevel(io.MultiWriter(file, packed, count), gzip.BestSpeed)
	if err != nil {
		return Layer{}, err
	}
	archive := tar.NewWriter(io.MultiWriter(zip, plain))
	if err := fill(archive); err != nil {
		return Layer{}, err
	}
	if err := archive.Close(); err != nil {
		return Layer{}, err
	}
	if err := zip.Close(); err != nil {
		return Layer{}, err
	}
	return Layer{File: path, Digest: sum(packed), DiffID: sum(plain), Size: count.n}, file.Close()
}

// Write makes an image archive of that name, the lowest layer first.
func Write(path, name string, config Config, layers []Layer) (err error) {
	_, tag, found := strings.Cut(filepath.Base(name), ":")
	if !found {
		return fmt.Errorf("image name %q has no tag", name)
	}
	platform := map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	var diffIDs []string
	var descriptors []descriptor
	for _, layer := range layers {
		diffIDs = append(diffIDs, layer.DiffID)
		descriptors = append(descriptors, descriptor{
			MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: layer.Digest, Size: layer.Size,
		})
	}
	blobs := map[string][]byte{}
	add := func(mediaType string, value any) (descriptor, error) {
		text, err := json.Marshal(value)
		digest := digestOf(text)
		blobs[digest] = text
		return descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(text))}, err
	}
	configBlob, err := add("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": platform["architecture"], "os": platform["os"], "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	if err != nil {
		return err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := add(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": configBlob, "layers": descriptors,
	})
	if err != nil {
		return err
	}
	manifest.Platform = platform
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}

	part := path + ".part"
	file, err := os.Create(part)
	if err != nil {
		return err
	}
	defer func() {
		file.Close()
		if err != nil {
			os.Remove(part)
		}
	}()
	archive := tar.NewWriter(file)
	put := func(name string, size int64, content io.Reader) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := io.Copy(archive, content)
		return err
	}
	blob := func(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }
	layout := []byte(`{"imageLayoutVersion":"1.0.0"}`)
	if err := put("oci-layout", int64(len(layout)), bytes.NewReader(layout)); err != nil {
		return err
	}
	if err := put("index.json", int64(len(index)), bytes.NewReader(index)); err != nil {
		return err
	}
	for digest, text := range blobs {
		if err := put(blob(digest), int64(len(text)), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	for _, layer := range layers {
		content, err := os.Open(layer.File)
		if err != nil {
			return err
		}
		err = put(blob(layer.Digest), layer.Size, content)
		content.Close()
		if err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(part, path)
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

func digestOf(text []byte) string {
	hash := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(hash[:])
}
