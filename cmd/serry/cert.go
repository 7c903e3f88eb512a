package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/wire/mtls"
)

const (
	authorityLife   = 5 * 365 * 24 * time.Hour
	certificateLife = 90 * 24 * time.Hour
)

func newCert() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make certificates for a job that has no authority of its own",
		Long: `Make certificates for a job that has no authority of its own. Both sides of
every connection then show one:

  serry cert new certs                            an authority
  serry cert issue certs coord --host coord.example.org
  serry cert issue certs worker                   one for all tasks, or one each

  serry serve --tasks 4 --tls-cert certs/coord.pem --tls-key certs/coord-key.pem \
    --tls-ca certs/ca.pem

Tasks need their own pair and ca.pem; ca-key.pem stays where certificates are made.
jax reads JAX_MTLS_CERT_FILE, JAX_MTLS_KEY_FILE and JAX_MTLS_CA_FILE.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return seeHelp(cmd, errors.New("want new, issue or show")) },
	}
	cmd.AddCommand(newCertNew(), newCertIssue(), newCertShow())
	return cmd
}

func newCertNew() *cobra.Command {
	var name string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "new directory",
		Short: "Make an authority",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLife(life); err != nil {
				return err
			}
			if _, err := mtls.NewAuthority(args[0], name, life); err != nil {
				return runError{err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is for everybody\n%s is for you alone\n",
				filepath.Join(args[0], "ca.pem"), filepath.Join(args[0], "ca-key.pem"))
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "serry", "`name` of the authority")
	cmd.Flags().DurationVar(&life, "life", authorityLife, "how long it is good")
	return cmd
}

func newCertIssue() *cobra.Command {
	var s mtls.Subject
	cmd := &cobra.Command{
		Use:   "issue directory name",
		Short: "Make a certificate, for the service or for ranks",
		Long: `Make a certificate with its key in the directory of the authority: name.pem and
name-key.pem. The service needs the names by which ranks dial it, unless all
sides check URI names instead (--tls-peer-prefix).`,
		Example: `  serry cert issue certs coord --host coord.example.org,10.0.0.7
  serry cert issue certs task3 --uri spiffe://example.org/worker/3`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLife(s.Life); err != nil {
				return err
			}
			s.Name = args[1]
			ca, err := mtls.OpenAuthority(args[0])
			if errors.Is(err, os.ErrNotExist) {
				return runError{hinted{err, "serry cert new makes an authority"}}
			}
			if err == nil {
				err = ca.Issue(args[0], s)
			}
			if err != nil {
				return runError{err}
			}
			path := filepath.Join(args[0], s.Name)
			fmt.Fprintf(cmd.OutOrStdout(), "--tls-cert %s.pem --tls-key %s-key.pem --tls-ca %s\n", path, path, filepath.Join(args[0], "ca.pem"))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&s.Hosts, "host", nil, "`names` and addresses of the host")
	cmd.Flags().StringSliceVar(&s.URIs, "uri", nil, "URI `names`, such as spiffe://example.org/worker/3")
	cmd.Flags().DurationVar(&s.Life, "life", certificateLife, "how long it is good")
	return cmd
}

func checkLife(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("--life %v: want more than 0", d)
	}
	return nil
}

// A certificateInfo is what people want to know of a certificate.
type certificateInfo struct {
	File   string    `json:"file"`
	Name   string    `json:"name"`
	Issuer string    `json:"issuer"`
	Hosts  []string  `json:"hosts"`
	URIs   []string  `json:"uris"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Good   bool      `json:"good"` // it has begun and not ended
}

func newCertShow() *cobra.Command {
	p := &printer{}
	cmd := &cobra.Command{
		Use:   "show file...",
		Short: "Say for whom certificates are, and until when",
		Args:  arguments(1, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.open(cmd); err != nil {
				return err
			}
			var all []certificateInfo
			for _, file := range args {
				info, err := readCertificate(file, time.Now())
				if err != nil {
					return runError{err}
				}
				all = append(all, info)
			}
			return failed(p.showCertificates(all))
		},
	}
	p.define(cmd)
	return cmd
}

// readCertificate reads the first certificate of a file, the one that peers see.
func readCertificate(file string, now time.Time) (certificateInfo, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return certificateInfo{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return certificateInfo{}, fmt.Errorf("%s: it does not begin with a certificate", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return certificateInfo{}, fmt.Errorf("%s: %w", file, err)
	}
	info := certificateInfo{
		File: file, Name: c.Subject.CommonName, Issuer: c.Issuer.CommonName,
		Hosts: orEmpty(c.DNSNames), URIs: []string{}, From: c.NotBefore, Until: c.NotAfter,
		Good: now.After(c.NotBefore) && now.Before(c.NotAfter),
	}
	for _, ip := range c.IPAddresses {
		info.Hosts = append(info.Hosts, ip.String())
	}
	for _, u := range c.URIs {
		info.URIs = append(info.URIs, u.String())
	}
	return info, nil
}

func (p *printer) showCertificates(all []certificateInfo) error {
	if done, err := p.object(struct {
		Version      int               `json:"version"`
		Certificates []certificateInfo `json:"certificates"`
	}{outputVersion, all}); done {
		return err
	}
	t := &table{columns: []column{{title: "FILE", most: 28}, {title: "GOOD UNTIL"}, {title: "NAMES"}}}
	for _, info := range all {
		c := green
		if !info.Good {
			c = red
		}
		names := strings.Join(slices.Concat(info.Hosts, info.URIs), " ")
		t.add(cell{text: info.File}, cell{info.Until.UTC().Format(time.DateOnly), c}, cell{text: names})
	}
	return p.table(t)
}
