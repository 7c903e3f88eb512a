package main

import (
	"context"
	"net/url"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs an etcd, as somebody else would have it. It serves clients over TLS, and wants a
// certificate of them. The arguments are the files of its own: certificate, key, and authority. $ETCD is
// then where it serves.
func startEtcd(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: etcd CERT KEY CA")
	}
	anywhere := func(scheme string) []url.URL { return []url.URL{{Scheme: scheme, Host: "127.0.0.1:0"}} }
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel = "elsewhere", ts.MkAbs("etcd-of-"+filepath.Base(args[0])), "fatal"
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = anywhere("http"), anywhere("http")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = anywhere("https"), anywhere("https")
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = ts.MkAbs(args[0]), ts.MkAbs(args[1])
	cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = ts.MkAbs(args[2]), true
	e, err := embed.StartEtcd(cfg)
	ts.Check(err)
	ts.Defer(e.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		ts.Check(err)
	case <-ctx.Done():
		ts.Fatalf("etcd has not started: %v", context.Cause(ctx))
	}
	ts.Setenv("ETCD", "https://"+e.Clients[0].Addr().String())
}
