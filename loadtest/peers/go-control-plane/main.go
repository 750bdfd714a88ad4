// An xDS server over the caches of go-control-plane, to measure Heliograph against. README.md says how it is driven
// and why its settings are fair.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"
)

// Flags of the command line.
type options struct {
	cache       string
	listen      string
	control     string
	certificate string
	key         string
}

func main() {
	options := options{}
	version := flag.Bool("version", false, "print what this was built from, and exit")
	flag.StringVar(&options.cache, "cache", "", "snapshot, snapshot-per-client or linear")
	flag.StringVar(&options.listen, "listen", "127.0.0.1:0", "address of the xDS server; port 0 takes a free one")
	flag.StringVar(&options.control, "control", "127.0.0.1:0", "address of the control server; port 0 takes a free one")
	flag.StringVar(&options.certificate, "tls-certificate", "", "PEM file; serves TLS, needs --tls-key")
	flag.StringVar(&options.key, "tls-key", "", "PEM file")
	flag.Parse()

	if *version {
		fmt.Println(builtFrom())
		return
	}
	if err := run(options, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "peer: %v\n", err)
		os.Exit(1)
	}
}

// Serves until stdin closes: whoever started this program takes it along when it ends, however it ends.
func run(options options, stdin io.Reader, stdout io.Writer) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag: see --help", flag.Arg(0))
	}
	backend, err := newBackend(options.cache)
	if err != nil {
		return err
	}
	credentials, err := loadCredentials(options.certificate, options.key)
	if err != nil {
		return err
	}
	adsListener, err := listen(options.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	controlListener, err := listen(options.control)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ads := newAdsServer(ctx, backend, credentials)
	control := &http.Server{Handler: newControl(backend), ReadHeaderTimeout: 10 * time.Second}

	ended := make(chan error, 3)
	go func() { ended <- ads.Serve(adsListener) }()
	go func() { ended <- control.Serve(controlListener) }()
	go func() {
		_, err := io.Copy(io.Discard, stdin)
		ended <- err
	}()
	err = json.NewEncoder(stdout).Encode(struct {
		Ads     string `json:"ads"`
		Control string `json:"control"`
	}{adsListener.Addr().String(), controlListener.Addr().String()})
	if err == nil {
		err = <-ended
	}

	cancel()
	ads.Stop()
	return errors.Join(err, control.Close())
}

// TCP keepalive is off: with ten thousand idle connections on one machine its probes are dropped now and then, which
// ends healthy connections.
func listen(address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1}
	return config.Listen(context.Background(), "tcp", address)
}

func builtFrom() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	line := info.GoVersion
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/envoyproxy/go-control-plane", "google.golang.org/grpc":
			line = fmt.Sprintf("%s %s, %s", module.Path, module.Version, line)
		}
	}
	return line
}
