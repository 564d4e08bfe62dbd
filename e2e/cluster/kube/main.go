// Command kube is every Kubernetes component in one program: the name it is called by chooses the component.
//
// One link instead of seven saves minutes of build time and most of a gigabyte of disk.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs with a time zone need it where the machine has no zone files

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // request metrics of the clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"etcd": func() { etcdmain.Main(os.Args) },
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              component(proxy.NewProxyCommand),
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func component(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 { // `kube kubelet --flag` works as well as a link named kubelet
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	run := programs[name]
	if run == nil {
		known := strings.Join(slices.Sorted(maps.Keys(programs)), "|")
		fmt.Fprintf(os.Stderr, "usage: kube %s [flags]\n", known)
		os.Exit(2)
	}
	run()
}
