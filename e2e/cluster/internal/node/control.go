package node

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"time"

	"ramen.dev/e2e/cluster/internal/place"
)

// Status is the answer of GET /status.
type Status struct {
	Tier       int       `json:"tier"`
	Started    time.Time `json:"started"`
	TotalKiB   int64     `json:"totalPssKiB"`
	Components []Health  `json:"components"`
}

// Control serves the cluster's socket: GET /status, POST /components/{name}/{stop|start|kill|freeze|thaw}.
func control(cluster place.Cluster, plan place.Plan, supervisor *supervisor) error {
	_ = os.Remove(cluster.Control())
	listener, err := net.Listen("unix", cluster.Control())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Status{
			Tier: plan.Tier, Started: plan.Started, TotalKiB: totalPSS(), Components: supervisor.health(),
		})
	})
	mux.HandleFunc("POST /components/{name}/{order}", func(w http.ResponseWriter, r *http.Request) {
		if err := supervisor.order(r.PathValue("name"), r.PathValue("order")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	go func() { _ = http.Serve(listener, mux) }()
	return nil
}
