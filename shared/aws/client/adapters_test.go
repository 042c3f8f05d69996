package client_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
)

// roundTripper answers the requests of the SDK.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer returns an answer to a request.
func answer(r *http.Request, status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
		Request: r}, nil
}

// functions has the functions of the adapters that make calls, as methods.
type functions struct{ client *s3.Client }

func (f functions) Resolve(ctx context.Context) ([]byte, error) {
	return s3.Resolve(ctx, f.client, []byte(`{"claimCheck":{"bucket":"b","key":"k"}}`))
}

// adapters returns one of each type that makes calls.
func adapters(t *testing.T, transport http.RoundTripper) []any {
	t.Helper()
	cfg := config(t, "http://aws.example")
	cfg.HTTPClient = &http.Client{Transport: transport}
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	db, objects, events := dynamodb.NewClient(cfg), s3.NewClient(cfg), eventbridge.NewClient(cfg)
	return []any{
		dynamodb.NewLedger(db, "t"), dynamodb.NewLedgerReader(db, "t"), dynamodb.NewKeys(db, "t"),
		dynamodb.NewKeysInspector(db, "t"),
		s3.NewBucket(objects, "b"), s3.NewReader(objects, "b"),
		eventbridge.NewBus(events, "b"),
		tokenstore.New(cfg, "p", "", ""), tokenstore.New(cfg, "", "", "s"),
		tokenstore.Source(cfg, "p", ""), tokenstore.Source(cfg, "", "s"), tokenstore.Credentials(cfg, "s"),
		functions{objects},
	}
}

// declared returns the exported types of the adapters with methods that get a context and return something.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() || len(f.Type.Params.List) == 0 ||
				f.Type.Results == nil || strings.HasSuffix(name, "_test.go") {
				continue
			}
			if c, ok := f.Type.Params.List[0].Type.(*ast.SelectorExpr); ok && c.Sel.Name == "Context" {
				receiver := f.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				if name := receiver.(*ast.Ident).Name; ast.IsExported(name) { // others are embedded in these
					types[file.Name.Name+"."+name] = true
				}
			}
		}
	}
	return types
}

// methods returns the methods of all adapters that get a context, by their names. transport answers their calls.
func methods(t *testing.T, transport http.RoundTripper) map[string]reflect.Value {
	t.Helper()
	all, types := map[string]reflect.Value{}, declared(t)
	for i, adapter := range adapters(t, transport) {
		v := reflect.ValueOf(adapter)
		delete(types, strings.TrimPrefix(v.Type().String(), "*"))
		for m, method := range v.Methods() {
			if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() {
				all[fmt.Sprintf("%d %T.%s", i, adapter, m.Name)] = method
			}
		}
	}
	if len(types) > 0 {
		t.Errorf("no call of %v", types)
	}
	return all
}

// call calls a method with n elements in each slice, and returns the text of its results.
func call(ctx context.Context, method reflect.Value, n int) string {
	in := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < method.Type().NumIn(); i++ {
		p := method.Type().In(i)
		switch p.Kind() {
		case reflect.Slice:
			in = append(in, reflect.MakeSlice(p, n, n))
		case reflect.String:
			in = append(in, reflect.ValueOf("x").Convert(p))
		case reflect.Func:
			in = append(in, reflect.MakeFunc(p, func([]reflect.Value) (out []reflect.Value) {
				for result := range p.Outs() {
					out = append(out, reflect.Zero(result))
				}
				return out
			}))
		default:
			in = append(in, reflect.Zero(p))
		}
	}
	var text strings.Builder
	for _, result := range method.Call(in) {
		fmt.Fprintf(&text, "%+v\n", result.Interface())
	}
	return text.String()
}

// Messages of AWS name accounts and resources, and errors are logged and returned.
func TestNoErrorOfAnAdapterHasAMessageOfAWS(t *testing.T) {
	const message = "User arn:aws:sts::123456789012:assumed-role is not authorized"
	for name, test := range map[string]struct {
		aws  roundTripper
		want string // in the results of each method
	}{
		"refused": {func(r *http.Request) (*http.Response, error) {
			if ofS3(r) { // whose answers are XML
				return answer(r, 403, `<Error><Code>AccessDenied</Code><Message>`+message+`</Message></Error>`)
			}
			return answer(r, 400, `{"__type":"AccessDeniedException","message":"`+message+`"}`)
		}, "AccessDenied"},
		"refused in part": {func(r *http.Request) (*http.Response, error) {
			if ofS3(r) {
				return answer(r, 200, "<"+message)
			}
			const refused = `{"Error":{"Code":"AccessDenied","Message":"` + message + `"},"ErrorCode":"Denied",` +
				`"ErrorMessage":"` + message + `"}`
			const two = `[` + refused + `,` + refused + `]`
			return answer(r, 200, `{"Parameter":{},"Responses":`+two+`,"Entries":`+two+`}`)
		}, ""},
		"without an answer": {func(*http.Request) (*http.Response, error) {
			return nil, errors.New(message)
		}, "no answer"},
	} {
		for what, method := range methods(t, test.aws) {
			for n := 1; n <= 2; n++ {
				text := call(t.Context(), method, n)
				if strings.Contains(text, "arn:") || !strings.Contains(text, test.want) {
					t.Errorf("%s: %s with %d: %s", name, what, n, text)
				}
			}
		}
	}
}

// An invocation that waits for a call longer than it has time is ended by Lambda, without an answer and a line.
func TestEveryCallOfAnAdapterEndsWithItsCaller(t *testing.T) {
	var cancel context.CancelFunc
	calls := 0
	all := methods(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		calls++
		cancel() // all contexts that are made of this one end before it returns
		if r.Context().Err() == nil {
			return answer(r, 500, "")
		}
		return nil, r.Context().Err()
	}))
	for what, method := range all {
		for n := 1; n <= 2; n++ {
			ctx, stop := context.WithCancel(t.Context())
			calls, cancel = 0, stop
			if text := call(ctx, method, n); calls != 1 || !strings.Contains(text, "canceled") {
				t.Errorf("%s with %d: %d calls: %s", what, n, calls, text)
			}
		}
	}
}
