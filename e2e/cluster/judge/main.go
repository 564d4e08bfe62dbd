// Judge says what kstatus and Flux make of objects, with the code that Flux itself runs. Its input is one JSON object:
// "objects" by name, and the expressions "current", "failed" and "inProgress" of a Flux health check. Its output names, for each
// object, the status by kstatus and that by the health check.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type input struct {
	Objects map[string]json.RawMessage `json:"objects"`
	kustomize.HealthCheckExpressions
}

type verdict struct {
	Kstatus string `json:"kstatus"`
	Flux    string `json:"flux"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

func run() error {
	var asked input
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	checks, err := cel.NewStatusEvaluator(&asked.HealthCheckExpressions)
	if err != nil {
		return err
	}
	verdicts := map[string]verdict{}
	for name, text := range asked.Objects {
		var object unstructured.Unstructured
		// Its own decoder keeps whole numbers whole, as those of Kubernetes do.
		if err := object.UnmarshalJSON(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		byRules, err := status.Compute(&object)
		if err != nil {
			return fmt.Errorf("%s: kstatus: %w", name, err)
		}
		byCheck, err := checks.Evaluate(context.Background(), &object)
		if err != nil {
			return fmt.Errorf("%s: health check: %w", name, err)
		}
		verdicts[name] = verdict{byRules.Status.String(), byCheck.Status.String()}
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}
