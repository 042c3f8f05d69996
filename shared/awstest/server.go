package awstest

import (
	"context"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// Handler answers the calls of its services over HTTP as AWS does, with the services in
// memory: AWS JSON 1.0 for DynamoDB and 1.1 for the others. It reads a request completely
// before it answers. It does not check signatures.
type Handler struct {
	DynamoDB       *DynamoDB
	SecretsManager *SecretsManager
}

// The operation of a request, such as DynamoDB_20120810.PutItem, and the prefixes of its
// services.
const (
	TargetHeader = "X-Amz-Target"

	dynamoDBTarget       = "DynamoDB_20120810."
	secretsManagerTarget = "secretsmanager."
)

func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	target := r.Header.Get(TargetHeader)
	version, operation, ok := "1.1", "", false
	var service any
	for prefix, s := range map[string]any{dynamoDBTarget: h.DynamoDB, secretsManagerTarget: h.SecretsManager} {
		if name, found := strings.CutPrefix(target, prefix); found {
			service, operation, ok = s, name, true
		}
	}
	if service == any(h.DynamoDB) {
		version = "1.0"
	}
	w.Header().Set("Content-Type", "application/x-amz-json-"+version)
	var answer []byte
	if method := reflect.ValueOf(service).MethodByName(operation); ok && method.IsValid() {
		answer, err = call(r.Context(), method, body)
	} else {
		err = denied("UnknownOperationException", "no operation "+strconv.Quote(target))
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		answer = errorAnswer(err)
	}
	w.Write(answer)
}

// call calls an operation with the input in body, and returns its output.
func call(ctx context.Context, operation reflect.Value, body []byte) ([]byte, error) {
	in := reflect.New(operation.Type().In(1).Elem())
	if err := json.Unmarshal(body, in.Interface(), json.WithUnmarshalers(decoders)); err != nil {
		return nil, denied("SerializationException", err.Error())
	}
	results := operation.Call([]reflect.Value{reflect.ValueOf(ctx), in})
	if err, failed := results[1].Interface().(error); failed {
		return nil, err
	}
	return json.Marshal(results[0].Interface(), json.WithMarshalers(encoders), json.OmitZeroStructFields(true))
}

// errorAnswer returns the body of an answer with an error. The members of the error are
// members of the body.
func errorAnswer(err error) []byte {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		api = &smithy.GenericAPIError{Code: "InternalServerError", Message: err.Error()}
	}
	members := map[string]any{"__type": api.ErrorCode(), "message": api.ErrorMessage()}
	if failed, ok := api.(*types.ConditionalCheckFailedException); ok && failed.Item != nil {
		members["Item"] = failed.Item
	}
	answer, err := json.Marshal(members, json.WithMarshalers(encoders))
	if err != nil {
		panic(fmt.Sprintf("awstest: %v", err)) // a member that has no form in JSON
	}
	return answer
}

// decoders and encoders have the types whose form in AWS JSON is not that of
// encoding/json/v2: an attribute value is an object with its type as the only name.
var (
	decoders = json.UnmarshalFromFunc(decodeAttribute)
	encoders = json.JoinMarshalers(
		json.MarshalToFunc(func(e *jsontext.Encoder, v types.AttributeValue) error { return encodeAttribute(e, v) }),
		json.MarshalToFunc(func(e *jsontext.Encoder, _ middleware.Metadata) error {
			return e.WriteValue(jsontext.Value("{}"))
		}))
)

func decodeAttribute(d *jsontext.Decoder, v *types.AttributeValue) error {
	var object struct {
		S, N *string
		B    *[]byte
		BOOL *bool
	}
	if err := json.UnmarshalDecode(d, &object); err != nil {
		return err
	}
	switch {
	case object.S != nil:
		*v = &types.AttributeValueMemberS{Value: *object.S}
	case object.N != nil:
		*v = &types.AttributeValueMemberN{Value: *object.N}
	case object.B != nil:
		*v = &types.AttributeValueMemberB{Value: *object.B}
	case object.BOOL != nil:
		*v = &types.AttributeValueMemberBOOL{Value: *object.BOOL}
	default:
		return errors.New("an attribute value without a type that is known")
	}
	return nil
}

func encodeAttribute(e *jsontext.Encoder, v types.AttributeValue) error {
	var object map[string]any
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		object = map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		object = map[string]any{"N": v.Value}
	case *types.AttributeValueMemberB:
		object = map[string]any{"B": base64.StdEncoding.EncodeToString(v.Value)}
	case *types.AttributeValueMemberBOOL:
		object = map[string]any{"BOOL": v.Value}
	default:
		return fmt.Errorf("an attribute value of type %T", v)
	}
	return json.MarshalEncode(e, object)
}
