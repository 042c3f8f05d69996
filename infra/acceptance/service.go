package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/infra/local"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// remoteService is the simulated payment service in the target. This process signs and
// sends its webhooks; the function serves its keys and tokens from the state that this
// process writes.
type remoteService struct {
	bucket  string
	objects *s3.Client
	sender  paymenttest.Sender
	state   paymenttest.State
}

// startService uses the service of the outputs of its stack.
func (r *Run) startService(ctx context.Context, outputs map[string]string) error {
	scheme, format, err := local.Scheme(r.Settings)
	if err != nil {
		return err
	}
	r.limitsBus, r.PaymentService = outputs["LimitsBus"], outputs["ServiceUrl"]
	if r.Endpoint != "" {
		r.PaymentService = deployment.FunctionURL(r.Endpoint, r.PaymentService)
	}
	r.PaymentService = strings.TrimRight(r.PaymentService, "/")
	r.service = &remoteService{
		bucket: outputs["StateBucket"], objects: r.S3(),
		sender: paymenttest.Sender{Scheme: scheme, Format: format, Identity: r.Identity,
			Method: r.Setting(settings.HTTPMethod), Client: r.Client},
		state: paymenttest.NewState(paymenttest.Options{
			TokenManagerID: r.Setting(settings.TokenManagerID),
			FormEncoded:    r.Setting(settings.CredentialEncoding) == "form",
			KeysBearer:     r.Setting(settings.KeysAuth) == "bearer",
		}),
	}
	r.Service = r.service
	return r.service.Rotate(ctx)
}

func (s *remoteService) Sender() paymenttest.Sender { return s.sender }

// Rotate makes a new key, publishes it and signs with it from then on.
func (s *remoteService) Rotate(ctx context.Context) error {
	key := paymenttest.NewKey(2048)
	return s.change(ctx, func(state *paymenttest.State) error {
		state.Publish(key)
		s.sender.Key = key
		return nil
	})
}

func (s *remoteService) SetTokenLifetime(ctx context.Context, d time.Duration) error {
	return s.change(ctx, func(state *paymenttest.State) error {
		state.TokenSeconds = int(d / time.Second)
		return nil
	})
}

func (s *remoteService) Misbehave(ctx context.Context, e paymenttest.Endpoint, f paymenttest.Fault) error {
	return s.change(ctx, func(state *paymenttest.State) error { return state.Misbehave(e, f) })
}

// change changes the state and writes it. S3 returns the new state to every read that
// starts after the write.
func (s *remoteService) change(ctx context.Context, do func(*paymenttest.State) error) error {
	if err := do(&s.state); err != nil {
		return err
	}
	text, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	if _, err := s.objects.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: aws.String("state.json"),
		Body: bytes.NewReader(text)}); err != nil {
		return fmt.Errorf("the state of the simulated payment service: %w", err)
	}
	return nil
}
