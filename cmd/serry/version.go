package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	p := &printer{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of serry",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.open(cmd); err != nil {
				return err
			}
			b := build()
			if done, err := p.object(b); done {
				return failed(err)
			}
			fmt.Fprintln(p.out, b)
			return nil
		},
	}
	p.define(cmd)
	return cmd
}

// A buildInfo says what this binary was built from.
type buildInfo struct {
	Version  int    `json:"version"`
	Serry    string `json:"serry"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go,omitempty"`
}

func (b buildInfo) String() string {
	return strings.Join(strings.Fields("serry "+b.Serry+" "+b.Revision+" "+b.Go), " ")
}

// version is set by the linker, see the Makefile; otherwise the Go tools know one.
var version string

// build reads what the Go tools recorded.
func build() buildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return buildInfo{Version: outputVersion, Serry: cmp.Or(version, "unknown")}
	}
	b := buildInfo{Version: outputVersion, Serry: cmp.Or(version, info.Main.Version), Go: info.GoVersion}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
