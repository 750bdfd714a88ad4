// A Kubernetes API for tests: the real etcd and the real kube-apiserver in one program, chosen by its first argument.
//
//	kubernetes etcd DIRECTORY CLIENT_PORT PEER_PORT
//	kubernetes kube-apiserver FLAGS...
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 1 && arguments[0] == "--version":
		fmt.Println(version.Get().GitVersion)
	case len(arguments) == 4 && arguments[0] == "etcd":
		if err := etcd(arguments[1], arguments[2], arguments[3]); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
	case len(arguments) > 0 && arguments[0] == "kube-apiserver":
		command := apiserver.NewAPIServerCommand()
		command.SetArgs(arguments[1:])
		os.Exit(cli.Run(command))
	default:
		fmt.Fprintln(os.Stderr, "usage: kubernetes etcd DIRECTORY CLIENT_PORT PEER_PORT | kube-apiserver FLAGS... | --version")
		os.Exit(2)
	}
}

// Runs until a signal ends it. What it holds does not outlive a test, so nothing waits for the disk.
func etcd(directory, client, peer string) error {
	local := func(port string) []url.URL {
		return []url.URL{{Scheme: "http", Host: "127.0.0.1:" + port}}
	}
	config := embed.NewConfig()
	config.Dir = directory
	config.ListenClientUrls, config.AdvertiseClientUrls = local(client), local(client)
	config.ListenPeerUrls, config.AdvertisePeerUrls = local(peer), local(peer)
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-signals:
		return nil
	case err := <-server.Err():
		return err
	}
}
