package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"ramen.dev/e2e/cluster/internal/place"
)

// Where kube-router says how it fares.
const routerHealthPort = 20244

// Checks asks the components whether they are ready.
type checks struct {
	server string
	client *http.Client
}

func newChecks(cluster place.Cluster, plan place.Plan) (*checks, error) {
	ca, err := os.ReadFile(cluster.Path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(cluster.Path("pki", "admin.crt"), cluster.Path("pki", "admin.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &checks{
		server: fmt.Sprintf("https://127.0.0.1:%d", plan.Port),
		client: &http.Client{
			Timeout: 5 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs: roots, Certificates: []tls.Certificate{cert},
			}},
		},
	}, nil
}

func (c *checks) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return body, nil
}

func (c *checks) api(ctx context.Context) error {
	_, err := c.get(ctx, c.server+"/readyz")
	return err
}

// Before it exists no pod can be made, and it comes about a second after the API is ready.
func (c *checks) serviceAccount(ctx context.Context) error {
	_, err := c.get(ctx, c.server+"/api/v1/namespaces/default/serviceaccounts/default")
	return err
}

func (c *checks) node(ctx context.Context) error {
	body, err := c.get(ctx, c.server+"/api/v1/nodes/"+NodeName)
	if err != nil {
		return err
	}
	var node struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != "Ready" {
			continue
		}
		if condition.Status != "True" {
			return errors.New(condition.Message)
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("the node still has the taint %s", node.Spec.Taints[0].Key)
		}
		return nil
	}
	return errors.New("the node has no condition Ready")
}

func (c *checks) router(ctx context.Context) error {
	_, err := c.get(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", routerHealthPort))
	return err
}
