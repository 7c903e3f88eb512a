// Protoc compiles .proto files to Go code with nothing but Go: protocompile reads them, and the two
// plugins, tools of this module, write the code. It is a module of its own so that none of this is
// a dependency of serry. It is run by package gen:
//
//	protoc ROOT OUT FILE...
//
// FILEs are slash-separated paths below ROOT; the code of each goes below OUT, beside where its
// .proto file lies below ROOT.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// prefix makes the name under which a file is registered in a process unlike anybody else's.
const prefix = "serry/"

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: protoc ROOT OUT FILE...")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "protoc:", err)
		os.Exit(1)
	}
}

func generate(root, out string, files []string) error {
	req, err := compile(root, files)
	if err != nil {
		return err
	}
	for plugin, parameter := range map[string]string{
		"protoc-gen-go":      "module=github.com/serry-dev/serry",
		"protoc-gen-go-grpc": "module=github.com/serry-dev/serry,require_unimplemented_servers=false",
	} {
		req.Parameter = proto.String(parameter)
		resp, err := run(plugin, req)
		if err != nil {
			return err
		}
		for _, f := range resp.File {
			name := filepath.Join(out, filepath.FromSlash(f.GetName()))
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(name, []byte(f.GetContent()), 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}

func compile(root string, files []string) (*pluginpb.CodeGeneratorRequest, error) {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = prefix + f
	}
	c := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: protocompile.SourceAccessorFromMap(sources(root, files)),
		}),
	}
	compiled, err := c.Compile(context.Background(), names...)
	if err != nil {
		return nil, err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	seen := make(map[string]bool)
	for _, f := range compiled {
		req.ProtoFile = appendFile(req.ProtoFile, seen, f.(linker.File))
	}
	return req, nil
}

// sources reads the files. One that cannot be read is left out, and the compiler says so.
func sources(root string, files []string) map[string]string {
	texts := make(map[string]string)
	for _, f := range files {
		if text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f))); err == nil {
			texts[prefix+f] = string(text)
		}
	}
	return texts
}

// appendFile adds f to list, after everything it imports.
func appendFile(list []*descriptorpb.FileDescriptorProto, seen map[string]bool, f protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return list
	}
	seen[f.Path()] = true
	imports := f.Imports()
	for i := range imports.Len() {
		list = appendFile(list, seen, imports.Get(i).FileDescriptor)
	}
	return append(list, protoutil.ProtoFromFileDescriptor(f))
}

func run(plugin string, req *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", plugin, err, stderr.String())
	}
	resp := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(output, resp); err != nil {
		return nil, fmt.Errorf("%s: %w", plugin, err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%s: %s", plugin, resp.GetError())
	}
	return resp, nil
}
