package main

import (
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
		Args:  cobra.NoArgs,
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

// build reads what the Go tools recorded.
func build() buildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return buildInfo{Version: outputVersion, Serry: "unknown"}
	}
	b := buildInfo{Version: outputVersion, Serry: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
