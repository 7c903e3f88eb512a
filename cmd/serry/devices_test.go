package main

import (
	"context"
	"errors"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// publish lets every member of a script's job publish the devices that a manifest has for it.
func publish(ts *testscript.TestScript, _ bool, args []string) {
	m, err := readManifest(ts.MkAbs(args[0]))
	ts.Check(err)
	members := jobOf(ts).members
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, member := range members {
		all.Go(func() {
			record := m.Tasks[i]
			local := &topopb.LocalTopologyProto{ProcessId: int32(i), BootId: record.BootID}
			for _, d := range record.Devices {
				local.Devices = append(local.Devices, &topopb.DeviceProto{LocalDeviceOrdinal: int32(d.Ordinal), DeviceKind: d.Kind})
			}
			e := topo.Exchange{Keys: topo.JAXKeys("cuda"), Tasks: len(members), Assign: true, Record: &record}
			_, errs[i] = member.Exchange(context.Background(), e, local)
		})
	}
	all.Wait()
	ts.Check(errors.Join(errs...))
}
