package template

import "reflect"

// values is what the templates' dot is. Structs are turned into maps: templates
// could call methods of values, and a map tells missing names from empty ones.
func (v Vars) values() map[string]any {
	return map[string]any{
		"Spec": spell(reflect.ValueOf(v.Spec)), "Name": v.Name, "Namespace": v.Namespace,
		"GatewayUID": v.GatewayUID, "ClusterID": v.ClusterID, "SecretName": v.SecretName,
	}
}

// spell turns structs, at any depth, into maps that hold each field under its
// name in Go and its name in JSON.
func spell(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Invalid:
		return map[string]any{}
	case reflect.Pointer:
		if v.IsNil() {
			return spell(reflect.Zero(v.Type().Elem()))
		}
		return spell(v.Elem())
	case reflect.Struct:
		m := make(map[string]any, 2*v.NumField())
		spellFields(v, m)
		return m
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return v.Interface()
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = spell(v.Index(i))
		}
		return list
	default:
		return v.Interface()
	}
}

func spellFields(v reflect.Value, into map[string]any) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, inline := jsonName(f)
		switch {
		case !f.IsExported():
		case inline && f.Type.Kind() == reflect.Struct:
			spellFields(v.Field(i), into)
		default:
			value := spell(v.Field(i))
			into[f.Name] = value
			if name != "" {
				into[name] = value
			}
		}
	}
}
