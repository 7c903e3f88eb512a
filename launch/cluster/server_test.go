package cluster

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// metadataServer answers for attributes.
func metadataServer(t *testing.T, attributes map[string]string) System {
	t.Helper()
	failures := 1 // the first request finds it busy
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failures > 0 {
			failures--
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				c.Close()
			}
			return
		}
		text, ok := attributes[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/instance/attributes/")]
		if !ok || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return with(map[string]string{"JAX_FORCE_TPU_INIT": "1", "GCE_METADATA_IP": strings.TrimPrefix(s.URL, "http://")})
}

func TestComputeEngine(t *testing.T) {
	clause.Cite(t, "C-ENV-16", "TC-ENV-10", "C-ENV-13", "C-ENV-14")
	for _, c := range []struct {
		name, workers, env string
		address, err       string
		processes, id      int
	}{
		{"triples", "n0:0:10.0.0.1,n1:1:10.0.0.2", "", "10.0.0.1:8482", "", 2, 1},
		{"hosts", "10.0.0.1,10.0.0.2", "", "10.0.0.1:8482", "", 2, 1},
		{"pairs", "a:b", "", "", "want a host, or name:id:address", 0, 0},
		{"slices", "10.0.0.1,10.0.0.2", "A: 'b'\nMEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\nMEGASCALE_COORDINATOR_ADDRESS: 'h0:1'\n", "h0:8482", "", 4, 3},
		{"slices that are no number", "10.0.0.1", "MEGASCALE_NUM_SLICES: 'two'", "", `"two"`, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			attributes := map[string]string{"agent-worker-number": "1", "worker-network-endpoints": c.workers}
			if c.env != "" {
				attributes["tpu-env"] = c.env
			}
			p, _, err := Detect(t.Context(), metadataServer(t, attributes), Place{}, Auto)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("Detect() = %+v, %v; want an error with %q", p, err, c.err)
				}
				return
			}
			if err != nil || p.Address.Is != c.address || p.Processes.Is != c.processes || p.ID.Is != c.id || p.Devices.Known() {
				t.Errorf("Detect() = %+v, %v; want %s, %d of %d, no devices", p, err, c.address, c.id, c.processes)
			}
		})
	}
}

// No metadata, or told not to ask: this is not Compute Engine.
func TestNotComputeEngine(t *testing.T) {
	sys := metadataServer(t, nil)
	if ok, why := presentGCE(t.Context(), sys); ok || !strings.Contains(why, "404") {
		t.Errorf("presentGCE() = %v, %q; want no, because of 404", ok, why)
	}
	if ok, why := presentGCE(t.Context(), with(map[string]string{"JAX_FORCE_TPU_INIT": "1", "TPU_SKIP_MDS_QUERY": "1"})); ok || !strings.Contains(why, "TPU_SKIP_MDS_QUERY") {
		t.Errorf("presentGCE() = %v, %q; want no, because it was told not to ask", ok, why)
	}
}

// apiServer is a Kubernetes API server with one pod, at 10.0.0.9, and one Job.
func apiServer(t *testing.T, pod string, status int) System {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "who are you", http.StatusUnauthorized)
		case status != http.StatusOK:
			http.Error(w, "no", status)
		case r.URL.Path == "/api/v1/namespaces/ns/pods":
			w.Write([]byte(`{"items": [{"status": {"podIP": "10.0.0.1"}}, ` + pod + `]}`))
		case r.URL.Path == "/apis/batch/v1/namespaces/ns/jobs/j":
			w.Write([]byte(`{"spec": {"parallelism": 4}}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	root := t.TempDir()
	dir := filepath.Join(root, accountDir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"token": []byte("secret\n"), "namespace": []byte("ns"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	sys := with(map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, completionIndex: "2", "HOSTNAME": "me"})
	sys.Root = root
	return sys
}

func TestKubernetes(t *testing.T) {
	clause.Cite(t, "TC-ENV-11", "C-ENV-15", "DLV-21")
	const owner = `"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u7", "controller": true}]`
	pod := func(metadata, spec string) string {
		return `{"metadata": {` + metadata + `}, "spec": {` + spec + `}, "status": {"podIP": "10.0.0.9"}}`
	}
	for _, c := range []struct {
		name, pod string
		status    int
		index     string
		want, err string
	}{
		{"job set", pod(owner+`, "labels": {"job-name": "j", "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/restart-attempt": "2"}`, `"subdomain": "sub"`), 200, "2", "j-0.js:55527", ""},
		{"subdomain", pod(owner, `"subdomain": "sub"`), 200, "2", "j-0.sub:55527", ""},
		{"no subdomain", pod(owner, ``), 200, "2", "", "headless service"},
		{"no index", pod(owner, `"subdomain": "sub"`), 200, "", "", `completionMode: "Indexed"`},
		{"no job", pod(`"name": "p", "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]`, ``), 200, "2", "", "pod p does not belong to a Job"},
		{"pod not found", `{"status": {"podIP": "10.0.0.2"}}`, 200, "2", "", "no pod of namespace ns"},
		{"forbidden", pod(owner, ``), 403, "2", "", "must be allowed to list pods"},
		{"broken", pod(owner, ``), 500, "2", "", "500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := apiServer(t, c.pod, c.status)
			vars := sys.Env
			sys.Env = func(name string) string {
				if name == completionIndex {
					return c.index
				}
				return vars(name)
			}
			p, err := resolveKubernetes(t.Context(), sys)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("resolveKubernetes() = %+v, %v; want an error with %q", p, err, c.err)
				}
				return
			}
			run := "u7.0"
			if strings.Contains(c.pod, "restart-attempt") {
				run = "u7.2"
			}
			if err != nil || p.Address.Is != c.want || p.Processes.Is != 4 || p.ID.Is != 2 || p.Job.Is != run {
				t.Errorf("resolveKubernetes() = %+v, %v; want %s, 2 of 4, job %s", p, err, c.want, run)
			}
		})
	}
}

// Detection ends with its context.
func TestDetectionEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sys := with(map[string]string{"JAX_FORCE_TPU_INIT": "1", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "a", "TPU_WORKER_ID": "0"})
	sys.Pause = time.Hour
	sys.Lookup = func(ctx context.Context, _ string) ([]string, error) { return nil, context.Cause(ctx) }
	if _, _, err := Detect(ctx, sys, Place{}, Auto); err == nil {
		t.Error("Detect() with a cancelled context = nil; want an error")
	}
}
