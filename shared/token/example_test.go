package token_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/token"
)

func ExampleNewClient() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	baseURL, err := url.Parse("https://api.payments.example")
	if err != nil {
		log.Fatal(err)
	}
	// Once per program: the reader caches the token.
	reader := token.NewReader(secretsmanager.NewFromConfig(cfg), os.Getenv("TOKEN_SECRET"))
	client := token.NewClient(reader, baseURL)

	response, err := client.Get(baseURL.JoinPath("/v1/protected/payments").String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
}

// storedToken is a secret that holds an access token, as the token function
// stores it. A program uses a secretsmanager.Client instead.
type storedToken struct{}

func (storedToken) GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
	...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	now := time.Now().UTC()
	return &secretsmanager.GetSecretValueOutput{SecretString: aws.String(fmt.Sprintf(
		`{"access_token":"example","token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))}, nil
}

func ExampleNewReader() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Authorization"))
	}))
	defer service.Close()
	baseURL, err := url.Parse(service.URL)
	if err != nil {
		log.Fatal(err)
	}

	client := token.NewClient(token.NewReader(storedToken{}, "Payhook/token"), baseURL)

	response, err := client.Get(baseURL.JoinPath("/v1/protected/payments").String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	// Output:
	// GET /v1/protected/payments Bearer example
}
