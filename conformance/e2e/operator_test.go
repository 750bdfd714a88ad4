package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// The Secrets of the key ring and of the password for Redis, as scripts/install has them.
	keysSecret  = "heliograph-keys"
	redisSecret = "heliograph-redis"
)

// The output of kubectl when it forwards connections to its port of this machine.
var forwarding = regexp.MustCompile(`^Forwarding from 127\.0\.0\.1:(\d+) `)

// operator runs helio on this machine against the store in the cluster, in the way of docs/operations.md: the chart's own
// Redis takes connections of the two programs only.
type operator struct {
	site     *site
	program  string
	keys     string
	password string
}

// listing is the output of `helio snapshot list` for a fleet.
type listing struct {
	PinnedTo  string `json:"pinnedTo"`
	PinnedBy  string `json:"pinnedBy"`
	PinReason string `json:"pinReason"`
	History   []struct {
		Head string `json:"head"`
	} `json:"history"`
}

func (s *site) operator(t *testing.T) *operator {
	t.Helper()
	program := os.Getenv("HELIO")
	if program == "" {
		t.Fatal("HELIO names no helio for this machine: build one with `cargo build -p helio`")
	}
	return &operator{
		site:     s,
		program:  program,
		keys:     s.secretFile(t, keysSecret, "keys.yaml"),
		password: s.secretFile(t, redisSecret, "password"),
	}
}

// secretFile is a file with an entry of a Secret of the system, for as long as the case lasts.
func (s *site) secretFile(t *testing.T, name, key string) string {
	t.Helper()
	var secret corev1.Secret
	must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: name}, &secret))
	if len(secret.Data[key]) == 0 {
		t.Fatalf("the Secret %s has no %s", name, key)
	}
	file := filepath.Join(t.TempDir(), key)
	must(t, os.WriteFile(file, secret.Data[key], 0o600))
	return file
}

// snapshot runs `helio snapshot` with these arguments, and returns what it prints. Each run has a way to Redis of its own, since
// a way ends with the pod that it leads to.
func (o *operator) snapshot(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	port, err := o.forward(ctx, t)
	if err != nil {
		return nil, err
	}
	helio := exec.CommandContext(ctx, o.program, append([]string{"snapshot"}, args...)...)
	helio.Env = append(os.Environ(), "HELIO_STORE=redis://127.0.0.1:"+port, "HELIO_STORE_KEYS="+o.keys,
		"HELIO_STORE_PASSWORD_FILE="+o.password, "HELIO_OPERATOR=e2e")
	var said bytes.Buffer
	helio.Stderr = &said
	out, err := helio.Output()
	if err != nil {
		return nil, fmt.Errorf("helio snapshot %v: %w: %s", args, err, said.Bytes())
	}
	return out, nil
}

// forward forwards a port of this machine to Redis until the context ends.
func (o *operator) forward(ctx context.Context, t *testing.T) (string, error) {
	ready := o.site.pods(t, "redis")
	if len(ready) != 1 {
		return "", fmt.Errorf("%d pods of the chart's Redis are ready, and not one", len(ready))
	}
	kubectl := exec.CommandContext(ctx, "kubectl", "--namespace", system, "port-forward", "pod/"+ready[0].Name, ":6379")
	var said bytes.Buffer
	kubectl.Stderr = &said
	out, err := kubectl.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := kubectl.Start(); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := forwarding.FindStringSubmatch(lines.Text()); found != nil {
			go func() {
				// It prints a line for each connection, and would block without a reader.
				for lines.Scan() {
				}
				_ = kubectl.Wait()
			}()
			return found[1], nil
		}
	}
	return "", errors.Join(kubectl.Wait(), fmt.Errorf("kubectl port-forward: %s", said.Bytes()))
}

// list is the history of a fleet, and its pin.
func (o *operator) list(t *testing.T, fleet string) (listing, error) {
	t.Helper()
	var found listing
	out, err := o.snapshot(t, "list", fleet, "--output=json")
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(out, &found)
}
