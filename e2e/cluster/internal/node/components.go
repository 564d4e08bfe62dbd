package node

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"ramen.dev/e2e/cluster/internal/pki"
	"ramen.dev/e2e/cluster/internal/place"
)

// Identities are the certificates of a cluster. The API server believes the common name and the organization.
var Identities = []pki.Identity{
	{File: "apiserver", CommonName: "kube-apiserver", Hosts: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
		"127.0.0.1", NodeAddress, APIService,
	}},
	{File: "kubelet-client", CommonName: "kube-apiserver-kubelet-client", Organization: "system:masters"},
	{File: "admin", CommonName: "admin", Organization: "system:masters"},
	{File: "controller-manager", CommonName: "system:kube-controller-manager"},
	{File: "scheduler", CommonName: "system:kube-scheduler"},
	{File: "proxy", CommonName: "system:kube-proxy"},
	{File: "router", CommonName: "kube-router", Organization: "system:masters"},
	{File: "node", CommonName: "system:node:" + NodeName, Organization: "system:nodes", Hosts: []string{NodeName, NodeAddress}},
}

// Credentials writes certificates and kubeconfigs of a new cluster.
func Credentials(cluster place.Cluster, port int) error {
	authority, err := pki.NewAuthority(cluster.Path("pki"))
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://127.0.0.1:%d", port)
	for _, who := range Identities {
		if err := authority.Issue(who); err != nil {
			return err
		}
		if err := authority.Kubeconfig(cluster.Path("pki", who.File+".conf"), who.File, server); err != nil {
			return err
		}
	}
	if err := authority.SigningPair("service-accounts"); err != nil {
		return err
	}
	return authority.Kubeconfig(cluster.Kubeconfig(), "admin", server)
}

// Every component with its flags, by name.
func components(cluster place.Cluster, plan place.Plan) map[string]component {
	pki := func(file string) string { return cluster.Path("pki", file) }
	config := func(file string) string { return cluster.Path("config", file) }
	set := map[string]component{}
	add := func(name, program string, flags ...string) {
		set[name] = component{Name: name, Args: append([]string{program}, flags...)}
	}
	kube := func(name string, flags ...string) { add(name, filepath.Join(plan.Kube, name), flags...) }

	kube("etcd",
		"--data-dir="+cluster.Path("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // a power cut may cost a test cluster its data
		"--log-level=warn",
	)
	kube("kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", plan.Port), "--advertise-address="+NodeAddress,
		"--client-ca-file="+pki("ca.crt"),
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
		"--kubelet-client-certificate="+pki("kubelet-client.crt"), "--kubelet-client-key="+pki("kubelet-client.key"),
		"--kubelet-certificate-authority="+pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP", // the node's name is in no DNS
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+pki("service-accounts.key"),
		"--service-account-key-file="+pki("service-accounts.pub"),
		"--service-cluster-ip-range="+ServiceNet,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// Tests count API calls and look for refusals in it.
		"--audit-policy-file="+config("audit.yaml"), "--audit-log-path="+cluster.Path("log", "audit.log"),
		"--profiling=false",
	)
	kube("kube-controller-manager",
		"--kubeconfig="+pki("controller-manager.conf"),
		"--service-account-private-key-file="+pki("service-accounts.key"), "--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
		"--use-service-account-credentials=true", "--leader-elect=false",
		// It makes an account and a token for each of its controllers first: at the usual 20 calls a second that is most
		// of the start.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--allocate-node-cidrs=true", "--cluster-cidr="+PodNet, "--service-cluster-ip-range="+ServiceNet,
		"--profiling=false",
	)
	kube("kube-scheduler", "--kubeconfig="+pki("scheduler.conf"), "--leader-elect=false", "--profiling=false")
	kube("kubelet",
		"--config="+config("kubelet.yaml"), "--kubeconfig="+pki("node.conf"),
		"--hostname-override="+NodeName, "--node-ip="+NodeAddress, "--root-dir=/var/lib/kubelet",
	)
	kube("kube-proxy", "--config="+config("proxy.yaml"))
	add("containerd", lookup("containerd"), "--config", config("containerd.toml"))
	add("kube-router", plan.Router,
		"--kubeconfig="+pki("router.conf"), "--hostname-override="+NodeName,
		"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false",
		"--service-cluster-ip-range="+ServiceNet,
		fmt.Sprintf("--health-port=%d", routerHealthPort), "--metrics-port=0",
	)
	return set
}

// Components run with a PATH of their own; the program is looked up there too when it is not on this one.
func lookup(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	return filepath.Join("/usr/sbin", program)
}
