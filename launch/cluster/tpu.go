package cluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/launch/host"
)

// TPU virtual machines, of Compute Engine and of Kubernetes Engine.

const (
	tpuPort        = "8482"
	resolvePause   = 10 // tries at a name are so many pauses apart
	resolveTries   = 60 // five minutes, as long as jax connects
	metadataTries  = 6
	metadataBytes  = 1 << 20
	metadataSingle = 60 * time.Second // for one try
)

// onTPU says whether this is a TPU virtual machine (C-ENV-16). Whether the library that drives the chips
// is there is known to the program that is started, not to us.
func onTPU(sys System) (bool, string) {
	if sys.env("JAX_FORCE_TPU_INIT") != "" {
		return true, "JAX_FORCE_TPU_INIT is set"
	}
	if n, _ := host.TPUs(sys.Root); n > 0 {
		return true, fmt.Sprintf("%d TPU chips", n)
	}
	return false, "no TPU chip"
}

func presentGCE(ctx context.Context, sys System) (bool, string) {
	tpu, why := onTPU(sys)
	if !tpu {
		return false, why
	}
	if sys.env("TPU_SKIP_MDS_QUERY") != "" {
		return false, "TPU_SKIP_MDS_QUERY is set"
	}
	if _, err := metadata(ctx, sys, "agent-worker-number"); err != nil {
		return false, err.Error()
	}
	return true, "the metadata server knows this worker"
}

func resolveGCE(ctx context.Context, sys System) (Place, error) {
	text, err := metadata(ctx, sys, "agent-worker-number")
	if err != nil {
		return Place{}, err
	}
	id, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return Place{}, fmt.Errorf("metadata agent-worker-number is %q: want a number", text)
	}
	list, err := metadata(ctx, sys, "worker-network-endpoints")
	if err != nil {
		return Place{}, err
	}
	workers, err := endpoints(list)
	if err != nil {
		return Place{}, err
	}
	return slice(ctx, sys, workers, Value[int]{id, "metadata agent-worker-number"}, "metadata worker-network-endpoints")
}

// endpoints reads a list of workers: each a host, or name:id:address (C-ENV-14).
func endpoints(list string) ([]string, error) {
	var hosts []string
	for item := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		switch parts := strings.Split(item, ":"); len(parts) {
		case 1:
			hosts = append(hosts, item)
		case 3:
			hosts = append(hosts, parts[2])
		default:
			return nil, fmt.Errorf("metadata worker-network-endpoints: %q: want a host, or name:id:address", item)
		}
	}
	return hosts, nil
}

// gkeVariables hold the list of workers, or the file that it is in; the first that is there counts.
var gkeVariables = []string{"TPU_PROCESS_ADDRESSES_PATH", "TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"}

func presentGKE(_ context.Context, sys System) (bool, string) {
	tpu, why := onTPU(sys)
	if !tpu {
		return false, why
	}
	name, err := gkeVariable(sys)
	if err != nil {
		return false, err.Error()
	}
	return true, name + " is set"
}

func gkeVariable(sys System) (string, error) {
	for _, name := range gkeVariables {
		if sys.env(name) != "" {
			return name, nil
		}
	}
	return "", errors.New(strings.Join(gkeVariables, ", ") + " are not set")
}

func resolveGKE(ctx context.Context, sys System) (Place, error) {
	name, err := gkeVariable(sys)
	if err != nil {
		return Place{}, err
	}
	list := sys.env(name)
	if name == gkeVariables[0] {
		b, err := os.ReadFile(sys.path(list))
		if err != nil {
			return Place{}, err
		}
		list = string(b)
	}
	id, err := sys.needed("TPU_WORKER_ID")
	if err != nil {
		return Place{}, err
	}
	return slice(ctx, sys, strings.Split(strings.TrimSpace(list), ","), id, name)
}

// slice is the place of a worker in a job of one or more slices of equal size (C-ENV-13).
func slice(ctx context.Context, sys System, workers []string, id Value[int], from string) (p Place, err error) {
	slices, err := megascale(ctx, sys, "MEGASCALE_NUM_SLICES", 1)
	if err != nil {
		return p, err
	}
	number, err := megascale(ctx, sys, "MEGASCALE_SLICE_ID", 0)
	if err != nil {
		return p, err
	}
	p.Processes = Value[int]{len(workers) * slices.Is, from + slices.From}
	p.ID = Value[int]{id.Is + number.Is*len(workers), id.From + number.From}
	address, source := workers[0], from
	if text := tpuVariable(ctx, sys, "MEGASCALE_COORDINATOR_ADDRESS"); text != "" {
		address, source = text, "MEGASCALE_COORDINATOR_ADDRESS"
	}
	address, _, _ = strings.Cut(address, ":")
	p.Address = Value[string]{net.JoinHostPort(address, tpuPort), source}
	return p, awaitName(ctx, sys, address)
}

// megascale reads a number that may be missing. From is empty then, else what is to be added to
// another source.
func megascale(ctx context.Context, sys System, name string, otherwise int) (Value[int], error) {
	text := tpuVariable(ctx, sys, name)
	if text == "" {
		return Value[int]{Is: otherwise}, nil
	}
	v, err := parseNumber(name, text)
	v.From = ", " + v.From
	return v, err
}

// tpuVariable reads a variable from the environment, else, where there is a metadata server, from the
// lines of its attribute tpu-env (C-ENV-13).
func tpuVariable(ctx context.Context, sys System, name string) string {
	if text := sys.env(name); text != "" || sys.env("TPU_SKIP_MDS_QUERY") != "" {
		return text
	}
	text, err := metadata(ctx, sys, "tpu-env")
	if err != nil {
		return "" // there is none
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.Trim(strings.TrimSpace(value), `'"`)
		}
	}
	return ""
}

// metadata asks the metadata server for an attribute of this machine (C-ENV-14).
func metadata(ctx context.Context, sys System, key string) (text string, err error) {
	server := cmp.Or(sys.env("GCE_METADATA_IP"), "metadata.google.internal")
	url := "http://" + server + "/computeMetadata/v1/instance/attributes/" + key
	for try := range metadataTries {
		if try > 0 {
			if err := pause.For(ctx, sys.Pause); err != nil {
				return "", err
			}
		}
		var final bool
		if text, final, err = ask(ctx, url); final {
			return text, err
		}
	}
	return "", err
}

// ask makes one request. It is final if the server has answered.
func ask(ctx context.Context, url string) (text string, final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, metadataSingle)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", true, err
	}
	request.Header.Set("Metadata-Flavor", "Google")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", false, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, metadataBytes))
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, reply.Status)
	}
	return string(body), true, err
}

// awaitName returns when a name resolves: the host of a coordinator may not be known yet when the
// first workers come.
func awaitName(ctx context.Context, sys System, name string) error {
	for try := 0; ; try++ {
		_, err := sys.Lookup(ctx, name)
		if err == nil {
			return nil
		}
		if try == resolveTries {
			return fmt.Errorf("host of the coordinator: %w", err)
		}
		if err := pause.For(ctx, resolvePause*sys.Pause); err != nil {
			return err
		}
	}
}
