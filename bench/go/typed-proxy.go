// A CRI proxy of the usual kind, for comparison: a grpc-go server decodes each message into its Go type of k8s.io/cri-api, and a grpc-go
// client encodes it again. It changes nothing and has no logic of its own, so that an actual proxy of this kind costs at least as much.
//
// Arguments: the socket to listen on, and the socket of the runtime.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const maxMessage = 16 << 20

// Serves the unary methods of a service, which the interface of its server names, by calling the runtime.
func proxyOf(service grpc.ServiceDesc, server reflect.Type, backend *grpc.ClientConn) *grpc.ServiceDesc {
	proxied := grpc.ServiceDesc{ServiceName: service.ServiceName, HandlerType: (*any)(nil), Metadata: service.Metadata}
	for _, method := range service.Methods {
		typed, _ := server.MethodByName(method.MethodName)
		request, response := typed.Type.In(1).Elem(), typed.Type.Out(0).Elem()
		path := "/" + service.ServiceName + "/" + method.MethodName
		handle := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			asked, answer := reflect.New(request).Interface(), reflect.New(response).Interface()
			if err := decode(asked); err != nil {
				return nil, err
			}
			if fields, ok := metadata.FromIncomingContext(ctx); ok {
				ctx = metadata.NewOutgoingContext(ctx, fields)
			}
			return answer, backend.Invoke(ctx, path, asked, answer)
		}
		proxied.Methods = append(proxied.Methods, grpc.MethodDesc{MethodName: method.MethodName, Handler: handle})
	}
	return &proxied
}

func main() {
	log.SetFlags(0)
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	backend, err := grpc.NewClient("passthrough:///"+os.Args[2],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	runtimes, images := reflect.TypeFor[runtime.RuntimeServiceServer](), reflect.TypeFor[runtime.ImageServiceServer]()
	server.RegisterService(proxyOf(runtime.RuntimeService_ServiceDesc, runtimes, backend), nil)
	server.RegisterService(proxyOf(runtime.ImageService_ServiceDesc, images, backend), nil)
	log.Fatal(server.Serve(listener))
}
