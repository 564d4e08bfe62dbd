// Package images builds the images of the test cluster without an image builder and without a registry.
package images

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Spec is one `images/NAME.json`: what is in an image of ours, on top of the base. The Containerfile of the same name
// has the same list; a test compares them.
type Spec struct {
	Name       string            `json:"name"`
	Make       string            `json:"make"`  // what builds the programs
	Files      map[string]string `json:"files"` // path in the image: path here, with {bin} and {uv}
	User       string            `json:"user"`
	Workdir    string            `json:"workdir"`
	Env        []string          `json:"env"`
	Ports      []string          `json:"ports"`
	Entrypoint []string          `json:"entrypoint"`
	Cmd        []string          `json:"cmd"`
	File       string            `json:"-"` // the stem of the file's name
}

// ReadSpecs reads every image of a folder.
func ReadSpecs(folder string) ([]Spec, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no image is described in %s", folder)
	}
	var specs []Spec
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		spec := Spec{File: strings.TrimSuffix(filepath.Base(file), ".json")}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&spec); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}
