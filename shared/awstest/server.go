package awstest

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// Handler answers the calls of a service in memory over HTTP as AWS does, in AWS JSON. It reads
// a request completely before it answers. It does not check signatures.
func Handler(service any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		_, operation, _ := strings.Cut(r.Header.Get(TargetHeader), ".")
		answer, err := call(r.Context(), reflect.ValueOf(service).MethodByName(operation), body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			answer = membersOf(err)
		}
		_ = json.MarshalWrite(w, answer, json.WithMarshalers(encoders), json.OmitZeroStructFields(true))
	})
}

// call calls an operation with the input in body, and returns its output.
func call(ctx context.Context, operation reflect.Value, body []byte) (any, error) {
	if !operation.IsValid() {
		return nil, denied("UnknownOperationException", "no such operation")
	}
	in := reflect.New(operation.Type().In(1).Elem())
	if err := json.Unmarshal(body, in.Interface(), json.WithUnmarshalers(decoders)); err != nil {
		return nil, denied("SerializationException", err.Error())
	}
	results := operation.Call([]reflect.Value{reflect.ValueOf(ctx), in})
	err, _ := results[1].Interface().(error)
	return results[0].Interface(), err
}

// membersOf returns the members of an answer with an error.
func membersOf(err error) any {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		api = &smithy.GenericAPIError{Code: "InternalServerError", Message: err.Error()}
	}
	members := map[string]any{"__type": api.ErrorCode(), "message": api.ErrorMessage()}
	if failed, ok := api.(*types.ConditionalCheckFailedException); ok && failed.Item != nil {
		members["Item"] = failed.Item
	}
	return members
}

// decoders and encoders have the types whose form in AWS JSON is not that of
// encoding/json/v2: an attribute value is an object with its type as the only name.
var (
	decoders = json.UnmarshalFromFunc(func(d *jsontext.Decoder, to *types.AttributeValue) error {
		var object map[string]jsontext.Value
		if err := json.UnmarshalDecode(d, &object); err != nil {
			return err
		}
		for name, text := range object {
			v, known := newAttribute[name]
			if !known {
				return fmt.Errorf("an attribute value of type %s", name)
			}
			*to = v()
			value := reflect.ValueOf(*to).Elem().FieldByName("Value")
			if err := json.Unmarshal(text, value.Addr().Interface()); err != nil {
				return err
			}
		}
		return nil
	})
	encoders = json.JoinMarshalers(
		json.MarshalToFunc(func(e *jsontext.Encoder, v types.AttributeValue) error {
			value := reflect.ValueOf(v).Elem().FieldByName("Value").Interface()
			return json.MarshalEncode(e, map[types.ScalarAttributeType]any{typeOf(v): value})
		}),
		json.MarshalToFunc(func(e *jsontext.Encoder, _ middleware.Metadata) error {
			return e.WriteValue(jsontext.Value("{}"))
		}))
)

var newAttribute = map[string]func() types.AttributeValue{
	"S":    func() types.AttributeValue { return &types.AttributeValueMemberS{} },
	"N":    func() types.AttributeValue { return &types.AttributeValueMemberN{} },
	"B":    func() types.AttributeValue { return &types.AttributeValueMemberB{} },
	"BOOL": func() types.AttributeValue { return &types.AttributeValueMemberBOOL{} },
}
