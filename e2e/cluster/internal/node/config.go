package node

import (
	"embed"
	"os"
	"text/template"

	"ramen.dev/e2e/cluster/internal/place"
)

//go:embed config
var configs embed.FS

// PauseImage holds the namespaces of a pod.
const PauseImage = "localhost/pause:1"

// Configure writes the configuration files of a new cluster.
func Configure(cluster place.Cluster) error {
	values := map[string]string{
		"Dir": cluster.Dir, "NodeName": NodeName, "PodNet": PodNet, "NodePodNet": nodePodNet, "DNSService": DNSService,
		"Group": GroupName(cluster.Name), "PauseImage": PauseImage, "CNIPrograms": "/usr/lib/cni",
	}
	for from, to := range map[string]string{
		"audit.yaml": "config/audit.yaml", "kubelet.yaml": "config/kubelet.yaml", "proxy.yaml": "config/proxy.yaml",
		"containerd.toml": "config/containerd.toml", "pods.conflist": "cni/config/10-pods.conflist",
	} {
		form, err := template.ParseFS(configs, "config/"+from)
		if err != nil {
			return err
		}
		file, err := os.OpenFile(cluster.Path(to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := form.Option("missingkey=error").Execute(file, values); err != nil {
			file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}
