// A server made with the official Go SDK: `server stdio|http`; over HTTP it prints its address. The same as
// client/tests/python_servers/server.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type terms struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Result int `json:"result"`
}

type reason struct {
	Why string `json:"why"`
}

type nothing struct{}

func server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "official-go", Version: "9.1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds."},
		func(_ context.Context, _ *mcp.CallToolRequest, in terms) (*mcp.CallToolResult, sum, error) {
			return nil, sum{in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "fail", Description: "Fails."},
		func(_ context.Context, _ *mcp.CallToolRequest, in reason) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New(in.Why)
		})
	mcp.AddTool(server, &mcp.Tool{Name: "steps", Description: "Reports progress."},
		func(ctx context.Context, request *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
			for step := range 3 {
				_ = request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: request.Params.GetProgressToken(), Progress: float64(step), Total: 3,
					Message: fmt.Sprintf("step %d", step),
				})
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
	server.AddResource(&mcp.Resource{Name: "text", URI: "demo://text", MIMEType: "text/plain"},
		func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: request.Params.URI, Text: "the text"}}}, nil
		})
	server.AddPrompt(&mcp.Prompt{Name: "review", Arguments: []*mcp.PromptArgument{{Name: "code", Required: true}}},
		func(_ context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			text := "Please review: " + request.Params.Arguments["code"]
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
		})
	return server
}

func main() {
	server := server()
	if os.Args[1] == "stdio" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Print(err)
		}
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	options := &mcp.StreamableHTTPOptions{Stateless: os.Args[1] == "stateless"}
	log.Fatal(http.Serve(listener, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)))
}
