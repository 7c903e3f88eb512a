package cluster_test

import (
	"context"
	"fmt"

	"github.com/serry-dev/serry/launch/cluster"
)

func ExampleDetect() {
	slurm := map[string]string{
		"SLURM_JOB_ID": "12345", "SLURM_STEP_NODELIST": "node[001-004]", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "0",
	}
	sys := cluster.System{Env: func(name string) string { return slurm[name] }}
	given := cluster.Place{Address: cluster.Value[string]{Is: "login:9000", From: "--coordinator"}}
	place, _, err := cluster.Detect(context.Background(), sys, given, "slurm")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(place.ID.Is, "of", place.Processes.Is, "from", place.ID.From)
	fmt.Println(place.Address.Is, "from", place.Address.From)
	// Output:
	// 2 of 4 from SLURM_PROCID
	// login:9000 from --coordinator
}
