package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/wire/mtls"
)

// A contextFile says how to reach one service, so that users need not type it again.
type contextFile struct {
	Address string `yaml:"address"`
	TLS     struct {
		Cert       string `yaml:"cert"`
		Key        string `yaml:"key"`
		CA         string `yaml:"ca"`
		PeerPrefix string `yaml:"peer_prefix"`
	} `yaml:"tls"`
}

const (
	defaultContext = "default" // is used where no other is named, if there is one
	contextSuffix  = ".yaml"
	maxContext     = 64 << 10 // bytes that such a file may have
)

// contextDir is where contexts are looked for by name.
func contextDir() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "serry", "contexts"), err
}

// findContext reads a context by name or path. Without either it is the default one, which need not
// exist.
func findContext(name string) (contextFile, error) {
	path, err := contextPath(name)
	if err != nil {
		if name == "" {
			err = nil // a user without a home has no contexts
		}
		return contextFile{}, err
	}
	c, err := readContext(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && name == "":
		return contextFile{}, nil
	case errors.Is(err, fs.ErrNotExist):
		return c, hinted{fmt.Errorf("context %q: no file %s", name, path), "serry context lists those that there are"}
	case err != nil:
		return c, fmt.Errorf("context %s: %w", path, err)
	}
	return c, nil
}

func contextPath(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) || strings.HasSuffix(name, contextSuffix) {
		return name, nil
	}
	if name == "" {
		name = defaultContext
	}
	dir, err := contextDir()
	return filepath.Join(dir, name+contextSuffix), err
}

// readContext reads a file strictly: one that is half written or has a word misspelt is no context.
// Paths in it are relative to it.
func readContext(path string) (contextFile, error) {
	var c contextFile
	info, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	if info.Size() > maxContext {
		return c, fmt.Errorf("%d bytes, at most %d are allowed", info.Size(), maxContext)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		return c, errors.New(firstLine(yaml.FormatError(err, false, false)))
	}
	if c.Address == "" {
		return c, errors.New("it has no address")
	}
	for _, p := range []*string{&c.TLS.Cert, &c.TLS.Key, &c.TLS.CA} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	return c, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (c contextFile) files() mtls.Files {
	return mtls.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA, PeerPrefix: c.TLS.PeerPrefix}
}

// contextNames lists the contexts of the user, sorted.
func contextNames() ([]string, error) {
	dir, err := contextDir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), contextSuffix); ok && !e.IsDir() {
			names = append(names, name)
		}
	}
	return names, err
}

func completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, _ := contextNames() // none can be offered
	return names, cobra.ShellCompDirectiveDefault
}

// A contextEntry is a context in the list of them.
type contextEntry struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	TLS     bool   `json:"tls"`
	Error   string `json:"error,omitempty"`
}

func newContext() *cobra.Command {
	p := &printer{}
	cmd := &cobra.Command{
		Use:   "context",
		Short: "List the services that are known by name",
		Long: `List the services that are known by name. A context is a file in
~/.config/serry/contexts, and its name is that of the file:

  # prod.yaml
  address: coord.example.org:8476
  tls:
    cert: me.pem        # paths are relative to this file
    key: me-key.pem
    ca: ca.pem
    peer_prefix: spiffe://example.org/job/

Commands use the one that --context or SERRY_CONTEXT names, or else the one
called default.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.open(cmd); err != nil {
				return err
			}
			return failed(listContexts(p))
		},
	}
	p.define(cmd)
	return cmd
}

func listContexts(p *printer) error {
	names, err := contextNames()
	if err != nil {
		return err
	}
	entries := []contextEntry{}
	for _, name := range names {
		e := contextEntry{Name: name}
		path, err := contextPath(name)
		if err != nil {
			return err
		}
		c, err := readContext(path)
		if err != nil {
			e.Error = err.Error()
		}
		e.Address, e.TLS = c.Address, !c.files().IsZero()
		entries = append(entries, e)
	}
	if done, err := p.object(struct {
		Version  int            `json:"version"`
		Contexts []contextEntry `json:"contexts"`
	}{outputVersion, entries}); done {
		return err
	}
	t := &table{columns: []column{{title: "CONTEXT", most: 24}, {title: "TLS"}, {title: "ADDRESS"}}}
	for _, e := range entries {
		secure := "no"
		if e.TLS {
			secure = "yes"
		}
		if e.Error != "" {
			t.add(cell{text: e.Name}, cell{text: "-"}, cell{e.Error, red})
			continue
		}
		t.add(texts(e.Name, secure, e.Address)...)
	}
	return p.table(t)
}

// failed marks an error as one of a command that was called rightly.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return runError{err}
}
