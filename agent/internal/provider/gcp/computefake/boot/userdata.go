package boot

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cloudConfig is a cloud-init document, as far as it is understood.
type cloudConfig struct {
	WriteFiles []writeFile `yaml:"write_files"`
	RunCmd     []command   `yaml:"runcmd"`
}

type writeFile struct {
	Path        string `yaml:"path"`
	Permissions string `yaml:"permissions"`
	Content     string `yaml:"content"`
	Owner       string `yaml:"owner"`
}

// command is a list of words, or a line for the shell.
type command struct{ words []string }

func (c *command) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		var line string
		if err := n.Decode(&line); err != nil {
			return err
		}
		// What a shell would make of it is not guessed.
		if strings.ContainsAny(line, "\"'`$\\;&|<>(){}*?#~\n") {
			return fmt.Errorf("line %d: the shell command %q is not understood; only plain words are", n.Line, line)
		}
		c.words = strings.Fields(line)
		return nil
	}
	return n.Decode(&c.words)
}

// joinLists is the one way of merging a later part that is understood, beside none: lists are appended, the rest stays.
const joinLists = "list(append)+dict(no_replace,recurse_list)+str()"

// parseUserData reads user data, which is one cloud-config document or a MIME archive of several.
func parseUserData(text string) (cloudConfig, error) {
	if strings.HasPrefix(text, "#cloud-config\n") {
		return parseDocument(text)
	}
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(text))).ReadMIMEHeader()
	if err != nil || header.Get("Content-Type") == "" {
		return cloudConfig{}, errors.New("user-data is neither a #cloud-config document nor a MIME archive")
	}
	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" || params["boundary"] == "" {
		return cloudConfig{}, fmt.Errorf("user-data: Content-Type %q is not understood; only multipart/mixed is", header.Get("Content-Type"))
	}
	_, body, ok := strings.Cut(text, "\r\n\r\n")
	if !ok {
		if _, body, ok = strings.Cut(text, "\n\n"); !ok {
			return cloudConfig{}, errors.New("user-data: the MIME archive has no body")
		}
	}
	var all cloudConfig
	parts := multipart.NewReader(strings.NewReader(body), params["boundary"])
	for n := 1; ; n++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) && n > 1 {
			return all, nil
		}
		if err != nil {
			return cloudConfig{}, fmt.Errorf("user-data: part %d of the MIME archive: %w", n, err)
		}
		next, err := parsePart(part)
		if err != nil {
			return cloudConfig{}, fmt.Errorf("user-data: part %d of the MIME archive: %w", n, err)
		}
		switch how := part.Header.Get("Merge-Type"); {
		case n == 1:
			all = next
		case how == joinLists:
			all.WriteFiles, all.RunCmd = append(all.WriteFiles, next.WriteFiles...), append(all.RunCmd, next.RunCmd...)
		case how == "":
			// As cloud-init does by default: a later list takes the place of an earlier one.
			if next.WriteFiles != nil {
				all.WriteFiles = next.WriteFiles
			}
			if next.RunCmd != nil {
				all.RunCmd = next.RunCmd
			}
		default:
			return cloudConfig{}, fmt.Errorf("user-data: part %d: Merge-Type %q is not understood; only %q is", n, how, joinLists)
		}
	}
}

func parsePart(part *multipart.Part) (cloudConfig, error) {
	kind, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
	if err != nil || kind != "text/cloud-config" {
		return cloudConfig{}, fmt.Errorf("Content-Type %q is not understood; only text/cloud-config is", part.Header.Get("Content-Type"))
	}
	var body io.Reader = part
	switch encoding := part.Header.Get("Content-Transfer-Encoding"); encoding {
	case "", "7bit", "8bit":
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, part)
	default:
		return cloudConfig{}, fmt.Errorf("Content-Transfer-Encoding %q is not understood", encoding)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return cloudConfig{}, err
	}
	return parseDocument(string(text))
}

// parseDocument reads one document and refuses keys that it does not know.
func parseDocument(text string) (cloudConfig, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !strings.HasPrefix(text, "#cloud-config\n") {
		return cloudConfig{}, errors.New("the document does not begin with #cloud-config")
	}
	var c cloudConfig
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return cloudConfig{}, fmt.Errorf("cloud-config: %w", err)
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return cloudConfig{}, errors.New("cloud-config: more than one YAML document")
	}
	return c, nil
}
