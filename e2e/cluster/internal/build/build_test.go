package build

import (
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ramen.dev/e2e/cluster/internal/place"
)

const sources = "../.."

func TestProgramsAreBuiltWithTheVersionOfTheirModule(t *testing.T) {
	for name, setting := range map[string]string{
		"kube":   "k8s.io/component-base/version.gitMinor=",
		"helm":   "helm.sh/helm/v3/internal/version.version=v3.",
		"router": "github.com/cloudnativelabs/kube-router/v2/pkg/version.Version=v2.",
	} {
		program, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := program.flags(sources + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(flags[1], setting) || strings.Contains(flags[1], "= ") || strings.HasSuffix(flags[1], "=") {
			t.Errorf("%s: %q", name, flags)
		}
	}
}

func TestKubernetesAndItsStagingModulesAreOfOneVersion(t *testing.T) {
	text, err := os.ReadFile(sources + "/kube/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	staging := "v0" + strings.TrimPrefix(required(string(text), "k8s.io/kubernetes"), "v1")
	for line := range strings.Lines(string(text)) {
		if _, to, found := strings.Cut(line, "=> k8s.io/"); found && !slices.Contains(strings.Fields(to), staging) {
			t.Errorf("%s is not %s", strings.TrimSpace(line), staging)
		}
	}
}

func TestTwoWhoNeedAProgramAtOnceBuildItOnce(t *testing.T) {
	sources := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x", "go.sum": "", "main.go": "package main\n\nfunc main() {}"} {
		if err := os.MkdirAll(sources+"/x", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sources+"/x/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := Program{Name: "x", File: "x", Package: ".", Version: func(string) []string { return nil }}
	cache := place.Cache{Root: t.TempDir()}
	var begun atomic.Int32
	say := func(format string, _ ...any) {
		if strings.HasPrefix(format, "building") {
			begun.Add(1)
		}
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := program.Ensure(sources, cache, say); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if begun.Load() != 1 {
		t.Errorf("built %d times", begun.Load())
	}
}

func TestAChangeOfTheModuleIsAnotherBuild(t *testing.T) {
	module := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(module+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module x")
	write("go.sum", "")
	write("main.go", "package main")
	keyOf := func(flags ...string) string {
		key, err := key(module, flags)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := keyOf("-a")
	if keyOf("-a") != first {
		t.Error("the key is not of the content")
	}
	if keyOf("-b") == first {
		t.Error("other flags, same key")
	}
	write("go.sum", "other")
	if keyOf("-a") == first {
		t.Error("another go.sum, same key")
	}
}
