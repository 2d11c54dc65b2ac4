package template

import (
	"encoding/json"
	"reflect"
	"strings"
)

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// memberType returns the type of a member of a JSON object that is read into t:
// nil if it can be anything. It reports false if there is none of that name.
func memberType(t reflect.Type, name string) (member reflect.Type, known bool) {
	switch t.Kind() {
	case reflect.Map:
		return indirect(t.Elem()), true
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			switch tag, inline := jsonName(f); {
			case inline:
				if member, known := memberType(indirect(f.Type), name); known {
					return member, true
				}
			case tag == name:
				return indirect(f.Type), true
			}
		}
		return nil, false
	}
	return nil, true // a mistake that shows when the object is used
}

// elementType is the type of the elements of a JSON array that is read into t,
// or nil.
func elementType(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return indirect(t.Elem())
	}
	return nil
}

// indirect returns what a pointer points to, and nil for what reads JSON in a
// way of its own: a quantity, or an integer that may be a string.
func indirect(t reflect.Type) reflect.Type {
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Interface || reflect.PointerTo(t).Implements(unmarshaler) || t == reflect.TypeFor[[]byte]() {
		return nil
	}
	return t
}

// jsonName is the name of a field in JSON; inline, its members are its parent's.
func jsonName(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" || !f.IsExported():
		return "", false
	case f.Anonymous && name == "" || strings.Contains(options, "inline"):
		return "", true
	case name == "":
		return f.Name, false
	}
	return name, false
}

// describe names a type for a message.
func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "fields"
	case reflect.Slice:
		return "a list"
	case reflect.Float64, reflect.Float32:
		return "a number"
	}
	return "a " + t.Kind().String()
}
