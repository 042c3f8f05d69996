package token_test

import (
	"context"
	"log"
	"net/url"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"

	"payhook.example/shared/aws/tokenstore"
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
	source := tokenstore.Source(cfg, os.Getenv("TOKEN_PARAMETER"), os.Getenv("TOKEN_SECRET"))
	client := token.NewClient(token.NewReader(source), baseURL)

	response, err := client.Get(baseURL.JoinPath("/v1/protected/payments").String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
}
