package images

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const folder = "../../../../images"

// What the last stage of a Containerfile makes, in the words of a Spec.
func lastStage(t *testing.T, path string) (Spec, []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	arguments := map[string]string{}
	spec, froms := Spec{Files: map[string]string{}}, []string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		if word == "ARG" {
			if name, value, found := strings.Cut(rest, "="); found {
				arguments[name] = value
			}
			continue
		}
		for name, value := range arguments {
			rest = strings.ReplaceAll(rest, "${"+name+"}", value)
		}
		fields := strings.Fields(rest)
		switch word {
		case "FROM":
			froms = append(froms, fields[0])
			spec = Spec{Files: map[string]string{}}
		case "COPY":
			spec.Files[fields[len(fields)-1]] = fields[len(fields)-2]
		case "USER":
			spec.User = rest
		case "WORKDIR":
			spec.Workdir = rest
		case "ENV":
			spec.Env = append(spec.Env, fields...)
		case "EXPOSE":
			spec.Ports = append(spec.Ports, fields...)
		case "ENTRYPOINT":
			spec.Entrypoint = list(t, rest)
		case "CMD":
			spec.Cmd = list(t, rest)
		case "RUN":
		default:
			t.Fatalf("%s: this test does not know %s", path, word)
		}
	}
	return spec, froms
}

func list(t *testing.T, text string) []string {
	t.Helper()
	inner, found := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !found || !closed {
		t.Fatalf("%q is the shell form, and there is no shell to count on", text)
	}
	var words []string
	for word := range strings.SplitSeq(inner, ",") {
		words = append(words, strings.Trim(word, ` "`))
	}
	return words
}

func TestContainerfilesMakeTheImagesThatAreTested(t *testing.T) {
	specs, err := ReadSpecs(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		t.Run(spec.File, func(t *testing.T) {
			built, froms := lastStage(t, filepath.Join(folder, spec.File+".Containerfile"))
			if len(froms) < 2 {
				t.Error("one stage only: compilers would be in the image")
			}
			var here, there []string
			for to, from := range spec.Files {
				here = append(here, to+" from "+filepath.Base(strings.ReplaceAll(from, "{uv}", "uv")))
			}
			for to, from := range built.Files {
				there = append(there, to+" from "+filepath.Base(from))
			}
			slices.Sort(here)
			slices.Sort(there)
			for what, pair := range map[string][2][]string{
				"files": {here, there}, "env": {spec.Env, built.Env}, "ports": {spec.Ports, built.Ports},
				"entrypoint": {spec.Entrypoint, built.Entrypoint}, "cmd": {spec.Cmd, built.Cmd},
				"user": {{spec.User}, {built.User}}, "workdir": {{spec.Workdir}, {built.Workdir}},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("%s: the test image has %q, the Containerfile %q", what, pair[0], pair[1])
				}
			}
		})
	}
}

func TestEveryContainerfileHasADescription(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(folder, "*.Containerfile"))
	if err != nil || len(files) == 0 {
		t.Fatal("no Containerfile found", err)
	}
	for _, file := range files {
		if _, err := os.Stat(strings.TrimSuffix(file, "Containerfile") + "json"); err != nil {
			t.Error(err)
		}
	}
}

func TestImagesRunAsAUserThatIsNotRoot(t *testing.T) {
	specs, err := ReadSpecs(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		user, group, _ := strings.Cut(spec.User, ":")
		if user == "" || user == "0" || group == "" || group == "0" || strings.Trim(user+group, "0123456789") != "" {
			t.Errorf("%s runs as %q: runAsNonRoot wants a number, and not 0", spec.Name, spec.User)
		}
	}
}

func TestTheImageHasTheInstallerThatIsTested(t *testing.T) {
	pins, err := os.ReadFile("../../../requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "worker.Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, version, found := strings.Cut(string(text), "ARG UV=")
	version, _, _ = strings.Cut(version, "\n")
	if !found || !slices.Contains(strings.Fields(string(pins)), "uv=="+version) {
		t.Errorf("worker.Containerfile has uv %q, e2e/requirements.txt pins another", version)
	}
}
