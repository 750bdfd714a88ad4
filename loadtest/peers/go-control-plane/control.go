package main

import (
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
)

const largestChange = 1 << 30

// What the Go runtime knows about memory, in bytes. What the system counts (PSS) is read from outside.
type memory struct {
	HeapLive     uint64 `json:"heap_live"`     // live objects, and dead ones that are not yet swept
	HeapInUse    uint64 `json:"heap_in_use"`   // pages with at least one object
	HeapIdle     uint64 `json:"heap_idle"`     // pages without, also those given back
	HeapReleased uint64 `json:"heap_released"` // given back to the system
	NextGC       uint64 `json:"next_gc"`       // size of the heap at which the next collection begins
	StackInUse   uint64 `json:"stack_in_use"`
	FromSystem   uint64 `json:"from_system"` // all address space taken
	Collections  uint32 `json:"collections"`
	Goroutines   int    `json:"goroutines"`
	Processors   int    `json:"processors"` // GOMAXPROCS
}

func newControl(backend backend) http.Handler {
	var oneAtATime sync.Mutex
	routes := http.NewServeMux()
	routes.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	routes.HandleFunc("POST /resources", func(w http.ResponseWriter, r *http.Request) {
		change, err := readChange(http.MaxBytesReader(w, r.Body, largestChange))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		oneAtATime.Lock()
		err = backend.apply(change)
		oneAtATime.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	routes.HandleFunc("POST /collect", func(w http.ResponseWriter, _ *http.Request) {
		// Twice, as what is in a sync.Pool survives the first.
		debug.FreeOSMemory()
		debug.FreeOSMemory()
		w.WriteHeader(http.StatusNoContent)
	})
	routes.HandleFunc("GET /memory", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(readMemory()) // fails only if the caller has gone
	})
	return routes
}

func readMemory() memory {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return memory{
		HeapLive:     stats.HeapAlloc,
		HeapInUse:    stats.HeapInuse,
		HeapIdle:     stats.HeapIdle,
		HeapReleased: stats.HeapReleased,
		NextGC:       stats.NextGC,
		StackInUse:   stats.StackInuse,
		FromSystem:   stats.Sys,
		Collections:  stats.NumGC,
		Goroutines:   runtime.NumGoroutine(),
		Processors:   runtime.GOMAXPROCS(0),
	}
}
