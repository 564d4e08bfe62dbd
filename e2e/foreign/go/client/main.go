// The official Go client: the steps of ../../node/steps.mjs.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type order struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Command []string          `json:"command"`
	Env     map[string]string `json:"env"`
	Era     string            `json:"era"`
	Text    string            `json:"text"`
	Mark    string            `json:"mark"`
	Seen    string            `json:"seen"`
	Told    bool              `json:"told"`
}

// withHeaders adds the headers of the order to each request.
type withHeaders map[string]string

func (headers withHeaders) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(request)
}

func (o *order) transport() mcp.Transport {
	if o.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: o.URL, HTTPClient: &http.Client{Transport: withHeaders(o.Headers)}}
	}
	command := exec.Command(o.Command[0], o.Command[1:]...)
	for name, value := range o.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	return &mcp.CommandTransport{Command: command}
}

func text(result *mcp.CallToolResult) string { return result.Content[0].(*mcp.TextContent).Text }

func is(path, content string) bool {
	written, _ := os.ReadFile(path)
	return string(written) == content
}

func main() {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var seen [][]any
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
			seen = append(seen, []any{request.Params.Progress, request.Params.Total, request.Params.Message})
			_ = os.WriteFile(o.Seen, []byte(strconv.Itoa(int(request.Params.Progress))), 0o600)
		},
	})
	options := &mcp.ClientSessionOptions{}
	if o.Era == "legacy" {
		options.ProtocolVersion = "2025-11-25"
	}
	session, err := client.Connect(ctx, o.transport(), options)
	if err != nil {
		log.Fatal(err)
	}
	call := func(ctx context.Context, name string, arguments any) (*mcp.CallToolResult, error) {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		if name == "paced" {
			params.SetProgressToken("of-the-test")
		}
		return session.CallTool(ctx, params)
	}
	steps := map[string]func() (any, error){
		"list": func() (any, error) {
			listed, err := session.ListTools(ctx, nil)
			if err != nil {
				return nil, err
			}
			var names []string
			for _, tool := range listed.Tools {
				names = append(names, tool.Name)
			}
			slices.Sort(names)
			return names, nil
		},
		"call": func() (any, error) {
			result, err := call(ctx, "echo", map[string]any{"text": o.Text})
			if err != nil {
				return nil, err
			}
			return text(result), nil
		},
		"error": func() (any, error) {
			result, err := call(ctx, "raises", map[string]any{"text": "no such city"})
			if err != nil {
				return nil, err
			}
			return []any{result.IsError, text(result)}, nil
		},
		// By now the tools are known with their output schemas.
		"output": func() (any, error) {
			terms := map[string]any{"a": 6, "b": 7}
			sum, err := call(ctx, "sum", terms)
			if err != nil {
				return nil, err
			}
			both, err := call(ctx, "both", terms)
			if err != nil {
				return nil, err
			}
			return []any{sum.StructuredContent, both.StructuredContent, text(sum)}, nil
		},
		"unknown": func() (any, error) {
			_, err := call(ctx, "no_such_tool", map[string]any{})
			var refused *jsonrpc.Error
			if errors.As(err, &refused) {
				return refused.Code, nil
			}
			return nil, fmt.Errorf("not refused by the protocol: %w", err)
		},
		"progress": func() (any, error) {
			if err := os.WriteFile(o.Seen, nil, 0o600); err != nil {
				return nil, err
			}
			result, err := call(ctx, "paced", map[string]any{"path": o.Seen, "count": 3})
			if err != nil {
				return nil, err
			}
			return []any{seen, text(result)}, nil
		},
		"resources": func() (any, error) {
			listed, err := session.ListResources(ctx, nil)
			if err != nil {
				return nil, err
			}
			var uris []string
			for _, resource := range listed.Resources {
				uris = append(uris, resource.URI)
			}
			slices.Sort(uris)
			notes, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "probe://notes"})
			if err != nil {
				return nil, err
			}
			picture, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "probe://picture"})
			if err != nil {
				return nil, err
			}
			blob := base64.StdEncoding.EncodeToString(picture.Contents[0].Blob)
			return []any{uris, notes.Contents[0].Text, blob}, nil
		},
		"prompts": func() (any, error) {
			listed, err := session.ListPrompts(ctx, nil)
			if err != nil {
				return nil, err
			}
			var names []string
			for _, prompt := range listed.Prompts {
				names = append(names, prompt.Name)
			}
			params := &mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"name": "Ada"}}
			got, err := session.GetPrompt(ctx, params)
			if err != nil {
				return nil, err
			}
			return []any{names, got.Messages[0].Content.(*mcp.TextContent).Text}, nil
		},
		"cancel": func() (any, error) {
			given, giveUp := context.WithCancel(ctx)
			ended := make(chan error)
			go func() {
				_, err := call(given, "patient", map[string]any{"path": o.Mark})
				ended <- err
			}()
			for !is(o.Mark, "started") {
				time.Sleep(10 * time.Millisecond)
			}
			giveUp()
			if err := <-ended; err == nil {
				return "answered", nil
			}
			for o.Told && !is(o.Mark, "cancelled") {
				time.Sleep(10 * time.Millisecond)
			}
			return "given up", nil
		},
	}
	told := map[string]any{"version": session.InitializeResult().ProtocolVersion}
	for _, name := range []string{"list", "call", "error", "output", "unknown", "progress", "resources", "prompts", "cancel"} {
		if told[name], err = steps[name](); err != nil {
			told[name] = map[string]string{"failed": err.Error()}
		}
	}
	_ = session.Close()
	_ = json.NewEncoder(os.Stdout).Encode(told)
}
