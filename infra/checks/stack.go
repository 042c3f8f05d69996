package checks

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
	"payhook.example/shared/wire"
)

// UsesMTLS reports whether webhooks need a client certificate.
func UsesMTLS(values map[string]string) bool {
	return settings.TextOf(values, "authentication") != settings.BySignature
}

// UsesSignature reports whether webhooks need a signature.
func UsesSignature(values map[string]string) bool {
	return settings.TextOf(values, "authentication") != settings.ByMTLS
}

func (s *Subject) usesSignature() bool { return UsesSignature(s.Stack.Settings) }

// fetchesKeys reports whether the stack fetches keys by the ids in webhooks.
func (s *Subject) fetchesKeys() bool {
	_, static := signature.StaticKeyID(s.Stack.Setting("keyIdLocation"))
	return !static && s.usesSignature()
}

// ServiceOptions returns the options of a payment service that does what settings expect.
func ServiceOptions(values map[string]string) (paymenttest.Options, error) {
	timestamp, errTimestamp := signature.ParseLocation(settings.TextOf(values, "timestampLocation"))
	keyID, errKeyID := signature.ParseKeyIDLocation(settings.TextOf(values, "keyIdLocation"))
	return paymenttest.Options{
		Scheme: signature.Scheme{SignatureHeader: settings.TextOf(values, "signatureHeader"), Timestamp: timestamp,
			KeyID: keyID},
		TokenManagerID: cmp.Or(settings.TextOf(values, "tokenManagerId"), settings.ByKey("tokenManagerId").Example),
		FormEncoded:    settings.TextOf(values, "credentialEncoding") == "form",
		KeysBearer:     settings.TextOf(values, "keyEndpointAuth") == "bearer",
	}, errors.Join(errTimestamp, errKeyID)
}

// Certificates are further client certificates of the payment service. In the zero value, the settings name none.
type Certificates struct {
	Next    tls.Certificate // the next one, which is pinned already
	Revoked tls.Certificate // its key is pinned and revoked
	// Unpinned is not pinned, and its key is not revoked.
	Unpinned tls.Certificate
}

// NewCertificates issues certificates by the CA of an identity. It also returns the settings that name them and the
// current one of the identity.
func NewCertificates(identity *paymenttest.Identity) (Certificates, map[string]string) {
	ca := identity.CA
	c := Certificates{Next: ca.Client(nil), Revoked: ca.Client(nil), Unpinned: ca.Client(nil)}
	revoked := clientcert.PinOf(c.Revoked.Leaf)
	return c, map[string]string{"revokedKeys": revoked, "clientCertPins": strings.Join([]string{
		clientcert.PinOf(identity.Certificate.Leaf), clientcert.PinOf(c.Next.Leaf), revoked}, ";")}
}

// SetConsumer reads the outputs of the consumer's stack.
func (s *Subject) SetConsumer(outputs map[string]string) error {
	if err := json.Unmarshal([]byte(outputs["Queues"]), &s.Stack.Queues); err != nil {
		return fmt.Errorf("the consumer's output Queues: %w", err)
	}
	if s.payments = outputs["PaymentsTable"]; s.payments == "" {
		return errors.New("the consumer's stack has no output PaymentsTable")
	}
	return nil
}

// StoreCredentials stores the client credentials, as a person does after the first deployment with tokens.
func (s *Subject) StoreCredentials(ctx context.Context, id, secret string) error {
	if !s.Stack.KeepsToken() {
		return nil
	}
	value, _ := json.Marshal(map[string]string{"client_id": id, "client_secret": secret})
	_, err := secretsmanager.NewFromConfig(s.Stack.AWS).PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{
		SecretId: &s.Stack.CredentialsSecret, SecretString: aws.String(string(value))})
	return err
}

// TokenRun is the answer of the token function.
type TokenRun struct {
	Outcome token.Outcome
	Cause   string
}

// RunToken invokes the token function.
func (s *Subject) RunToken(ctx context.Context, event string) (run TokenRun, err error) {
	return run, s.Invoke(ctx, "token", event, &run)
}

// NewKey makes a new key, publishes it and signs with it from then on.
func (s *Subject) NewKey(ctx context.Context) error {
	key := paymenttest.NewKey(2048)
	if id, ok := signature.StaticKeyID(s.Stack.Setting("keyIdLocation")); ok {
		key.ID = id
	}
	s.Sender.Key = key
	return s.Change(ctx, func(state *paymenttest.State) { state.Publish(key) })
}

// fault returns what makes an endpoint of the payment service fail, or ends that if f is "".
func (s *Subject) fault(e wire.Endpoint, f wire.Fault) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.Change(ctx, func(state *paymenttest.State) { state.Faults[e] = f })
	}
}

// latest returns what sees what the consumer's function has stored of the payment of an event.
func (s *Subject) latest(e payment.Event) func(context.Context) (Seen, error) {
	return func(ctx context.Context) (Seen, error) {
		id := e.EventData.Identifiers.SvcUniquePaymentID
		out, err := dynamodb.NewFromConfig(s.Stack.AWS).GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.payments,
			ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{
				"paymentId": &types.AttributeValueMemberS{Value: id}}})
		if err != nil {
			return Seen{}, err
		}
		var item struct{ Status, Amount string }
		err = attributevalue.UnmarshalMap(out.Item, &item)
		return Seen{Fields: Fields{"status": item.Status, "amount": item.Amount}}, err
	}
}

// locked tries what Object Lock forbids: to delete a version, and to write an object without a checksum (AWS,
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html).
func (s *Subject) locked(ctx context.Context) (Seen, error) {
	all, err := s.Stack.S3().ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &s.Stack.EvidenceBucket})
	if err == nil && len(all.Versions) == 0 {
		err = errors.New("there is no proof")
	}
	if err != nil {
		return Seen{}, err
	}
	_, deleted := s.Stack.S3().DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.Stack.EvidenceBucket,
		Key: all.Versions[0].Key, VersionId: all.Versions[0].VersionId})
	_, written := s3.NewFromConfig(s.Stack.AWS, func(o *s3.Options) {
		o.UsePathStyle, o.RequestChecksumCalculation = true, aws.RequestChecksumCalculationWhenRequired
	}).PutObject(ctx, &s3.PutObjectInput{Bucket: &s.Stack.EvidenceBucket, Key: aws.String("other"),
		Body: strings.NewReader("{}")})
	return Seen{Fields: Fields{"deleted": deleted == nil, "written": written == nil}}, nil
}

// callAPI calls the protected API with the stored token, as a client does that has read nothing yet.
func (s *Subject) callAPI(ctx context.Context) (Seen, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		s.Stack.PaymentService+paymenttest.ProtectedPath+"payments", nil)
	if err != nil {
		return Seen{}, err
	}
	client := token.NewClient(s.Stack.Token(), r.URL)
	client.Timeout = 10 * time.Second
	answer, err := client.Do(r)
	if err != nil {
		return Seen{}, err
	}
	return Seen{Status: answer.StatusCode}, answer.Body.Close()
}

func (s *Subject) tokens(live time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.Change(ctx, func(state *paymenttest.State) { state.TokenSeconds = int(live.Seconds()) })
	}
}

// replace invokes the token function again and again, as by its schedule every minute, until another token is stored.
func (s *Subject) replace(ctx context.Context) (Seen, error) {
	old, err := s.Stack.Token().Bearer(ctx)
	if err != nil {
		return Seen{}, err
	}
	return Seen{}, Poll(ctx, time.Until(old.ExpiresAt), 100*time.Millisecond, func() (bool, error) {
		if _, err := s.RunToken(ctx, AsScheduled); err != nil {
			return false, err
		}
		now, err := s.Stack.Token().Bearer(ctx)
		return err == nil && !now.AccessToken.Equal(old.AccessToken), err
	})
}
