package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

const (
	// A request through a proxy to the next pod.
	requestTimeout = 5 * time.Second
	// Between two requests of steady traffic.
	trafficPause = 20 * time.Millisecond
)

// echo is the answer of the backend: its name, and the request that reached it.
type echo struct {
	Pod     string      `json:"pod"`
	Headers http.Header `json:"headers"`
}

// ask sends one request, and returns the pod that answered.
func ask(ctx context.Context, scheme, address, host, path string) (string, error) {
	answer, err := fetch(ctx, scheme, address, host, path)
	return answer.Pod, err
}

// fetch sends one request over a connection of its own to the address, for a host and path. The certificate is not checked:
// the cases that need it check it themselves.
func fetch(ctx context.Context, scheme, address, host, path string) (echo, error) {
	var answer echo
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	to := net.JoinHostPort(address, port)
	dialer := &net.Dialer{}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, to)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: host},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+path, nil)
	if err != nil {
		return answer, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer, err
	}
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s%s answers %s: %.200s", host, path, response.Status, body)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return answer, fmt.Errorf("%s%s answers something else than the backend would: %w", host, path, err)
	}
	return answer, nil
}

// answers waits for a first answer.
func answers(t *testing.T, scheme, address, host, path string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s://%s%s answers at %s", scheme, host, path, address), func() error {
		_, err := ask(t.Context(), scheme, address, host, path)
		return err
	})
}

// traffic is requests one after the other for as long as a case lasts.
type traffic struct {
	stop func()
	done sync.WaitGroup

	lock   sync.Mutex
	sent   int
	failed []error
}

// begin starts traffic to a backend that already answers. The case ends it with mustBeWhole.
func begin(t *testing.T, scheme, address, host, path string) *traffic {
	return beginWith(t, func(ctx context.Context) error {
		_, err := ask(ctx, scheme, address, host, path)
		return err
	})
}

// beginWith is the same with requests that return whether they failed.
func beginWith(t *testing.T, request func(context.Context) error) *traffic {
	ctx, cancel := context.WithCancel(t.Context())
	under := &traffic{stop: cancel}
	under.done.Go(func() {
		ticks := time.NewTicker(trafficPause)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			err := request(ctx)
			if ctx.Err() != nil {
				return
			}
			under.lock.Lock()
			under.sent++
			if err != nil && len(under.failed) < 10 {
				under.failed = append(under.failed, err)
			}
			under.lock.Unlock()
		}
	})
	t.Cleanup(under.end)
	return under
}

// count is how many requests were answered or failed so far.
func (under *traffic) count() int {
	under.lock.Lock()
	defer under.lock.Unlock()
	return under.sent
}

// goOn waits until so many more requests were made.
func (under *traffic) goOn(t *testing.T, more int) {
	t.Helper()
	goal := under.count() + more
	eventually(t, fmt.Sprintf("%d more requests are made", more), func() error {
		if count := under.count(); count < goal {
			return fmt.Errorf("%d of %d", count, goal)
		}
		return nil
	})
}

func (under *traffic) end() {
	under.stop()
	under.done.Wait()
}

// mustBeWhole ends the traffic: not one request may have failed.
func (under *traffic) mustBeWhole(t *testing.T) {
	t.Helper()
	under.end()
	for _, err := range under.failed {
		t.Errorf("a request failed: %v", err)
	}
	if under.sent == 0 {
		t.Error("no request was made")
	}
	t.Logf("%d requests", under.sent)
}
