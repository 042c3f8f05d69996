//go:build tools

package payhook

// New builds these programs. The imports put them into the vendor folder of a module that uses this package.
import (
	_ "payhook.example/functions/redrive"
	_ "payhook.example/functions/token"
	_ "payhook.example/functions/webhook"
)
