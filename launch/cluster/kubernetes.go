package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/serry-dev/serry/internal/pause"
)

const (
	kubernetesPort  = "55527"
	completionIndex = "JOB_COMPLETION_INDEX"
	accountDir      = "var/run/secrets/kubernetes.io/serviceaccount"
	replyBytes      = 16 << 20
)

// presentKubernetes asks for an indexed Job, because a pod of another kind has no place in a job.
func presentKubernetes(_ context.Context, sys System) (bool, string) {
	if name := sys.missing("KUBERNETES_SERVICE_HOST"); name != "" {
		return false, name + " is not set"
	}
	if name := sys.missing(completionIndex); name != "" {
		return false, name + " is not set: this is no pod of an indexed Job"
	}
	return true, "KUBERNETES_SERVICE_HOST and " + completionIndex + " are set"
}

// resolveKubernetes asks the API server for our pod and its Job (C-ENV-15).
func resolveKubernetes(ctx context.Context, sys System) (p Place, err error) {
	if p.ID, err = sys.number(completionIndex); err == nil && !p.ID.Known() {
		err = errors.New(completionIndex + ` is not set: the Job needs completionMode: "Indexed"`)
	}
	if err != nil {
		return p, err
	}
	api, err := newAPI(sys)
	if err != nil {
		return p, err
	}
	own, err := api.ownPod(ctx, sys)
	if err != nil {
		return p, err
	}
	name, err := own.job()
	if err != nil {
		return p, err
	}
	var job struct{ Spec struct{ Parallelism int } }
	if err := api.get(ctx, "apis/batch/v1/namespaces/"+api.namespace+"/jobs/"+url.PathEscape(name), &job); err != nil {
		return p, err
	}
	p.Processes = Value[int]{job.Spec.Parallelism, "parallelism of Job " + name}
	subdomain := cmp.Or(own.Metadata.Labels["jobset.sigs.k8s.io/jobset-name"], own.Spec.Subdomain)
	if subdomain == "" {
		return p, fmt.Errorf("the pods of Job %s have no subdomain: they need a headless service, named as subdomain in the pod template, to find each other", name)
	}
	host := name + "-0." + subdomain
	p.Address = Value[string]{net.JoinHostPort(host, kubernetesPort), "pod 0 of Job " + name}
	p.Job = own.run(name)
	return p, awaitName(ctx, sys, host)
}

// An api is the API server, as a pod reaches it.
type api struct {
	base      string
	token     string
	namespace string
	client    *http.Client
}

func newAPI(sys System) (*api, error) {
	var err error
	read := func(name string) []byte {
		b, e := os.ReadFile(sys.path(accountDir + "/" + name))
		err = cmp.Or(err, e)
		return bytes.TrimSpace(b)
	}
	token, namespace, ca := read("token"), read("namespace"), read("ca.crt")
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("service account: ca.crt has no certificate")
	}
	port := cmp.Or(sys.env("KUBERNETES_SERVICE_PORT"), "443")
	return &api{
		base:  "https://" + net.JoinHostPort(sys.env("KUBERNETES_SERVICE_HOST"), port) + "/",
		token: string(token), namespace: string(namespace),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}},
	}, nil
}

// get reads an object.
func (a *api) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	reply, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
		return json.NewDecoder(io.LimitReader(reply.Body, replyBytes)).Decode(into)
	case http.StatusForbidden:
		return fmt.Errorf("%s: %s: the service account of the pod must be allowed to list pods and to get jobs", path, reply.Status)
	}
	return fmt.Errorf("%s: %s", path, reply.Status)
}

// A pod is what we read of one.
type pod struct {
	Metadata struct {
		Name            string
		Labels          map[string]string
		OwnerReferences []owner
	}
	Spec   struct{ Subdomain string }
	Status struct{ PodIP string }
}

// An owner is what has made a pod.
type owner struct {
	Kind, Name, UID string
	Controller      bool
}

// ownPod finds the pod that has the address of this host. It may take a moment until the API server
// knows that.
func (a *api) ownPod(ctx context.Context, sys System) (*pod, error) {
	addresses, err := sys.Lookup(ctx, sys.env("HOSTNAME"))
	if err != nil {
		return nil, err
	}
	for try := range metadataTries {
		if try > 0 {
			if err := pause.For(ctx, sys.Pause); err != nil {
				return nil, err
			}
		}
		var list struct{ Items []pod }
		if err := a.get(ctx, "api/v1/namespaces/"+a.namespace+"/pods", &list); err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			if slices.Contains(addresses, p.Status.PodIP) {
				return &p, nil
			}
		}
	}
	return nil, fmt.Errorf("no pod of namespace %s has an address of this host, %v", a.namespace, addresses)
}

// job is the Job that a pod belongs to.
func (p *pod) job() (string, error) {
	for _, owner := range p.Metadata.OwnerReferences {
		if owner.Controller && owner.Kind == "Job" {
			return cmp.Or(p.Metadata.Labels["job-name"], owner.Name), nil
		}
	}
	return "", fmt.Errorf("pod %s does not belong to a Job", p.Metadata.Name)
}

// run names one run of the Job: a JobSet that starts its Jobs again gives them other uids and counts up its attempt.
func (p *pod) run(job string) Value[string] {
	i := slices.IndexFunc(p.Metadata.OwnerReferences, func(o owner) bool { return o.Controller })
	if i < 0 || p.Metadata.OwnerReferences[i].UID == "" {
		return Value[string]{}
	}
	attempt := cmp.Or(p.Metadata.Labels["jobset.sigs.k8s.io/restart-attempt"], "0")
	return Value[string]{p.Metadata.OwnerReferences[i].UID + "." + attempt, "uid and restart attempt of Job " + job}
}
