import static org.objectweb.asm.Opcodes.*;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Type;
import org.objectweb.asm.commons.GeneratorAdapter;
import org.objectweb.asm.commons.Method;
import org.objectweb.asm.tree.InvokeDynamicInsnNode;

/** The class of one lambda: a field for each captured value, and a method that makes an instance. */
final class Lambda {
    /** Name of the static method that makes an instance of what the lambda captures. */
    static final String FACTORY = "of";
    private static final int FLAG_SERIALIZABLE = 1, FLAG_MARKERS = 2, FLAG_BRIDGES = 4;

    private final Type self, type;
    private final Type[] captured;
    private final Method constructor;
    private final Handle body;
    private final Type exact;
    private final String method;
    private final Set<String> interfaces = new LinkedHashSet<>();
    private final Set<String> descriptors = new LinkedHashSet<>();
    private final ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);

    Lambda(String name, InvokeDynamicInsnNode call, Handle body) {
        self = Type.getObjectType(name);
        type = Type.getReturnType(call.desc);
        captured = Type.getArgumentTypes(call.desc);
        constructor = new Method("<init>", Type.VOID_TYPE, captured);
        this.body = body;
        method = call.name;
        exact = (Type) call.bsmArgs[2];
        interfaces.add(type.getInternalName());
        descriptors.add(((Type) call.bsmArgs[0]).getDescriptor());
        if (call.bsm.getName().equals("altMetafactory")) readFurther(call.bsmArgs);
    }

    /** Reads flags, then a count and types for each list that the flags announce. */
    private void readFurther(Object[] arguments) {
        int at = 3, flags = (Integer) arguments[at++];
        if ((flags & FLAG_SERIALIZABLE) != 0) interfaces.add("java/io/Serializable");
        if ((flags & FLAG_MARKERS) != 0) {
            for (int left = (Integer) arguments[at++]; left > 0; left--) {
                interfaces.add(((Type) arguments[at++]).getInternalName());
            }
        }
        if ((flags & FLAG_BRIDGES) != 0) {
            for (int left = (Integer) arguments[at++]; left > 0; left--) {
                descriptors.add(((Type) arguments[at++]).getDescriptor());
            }
        }
    }

    byte[] bytes() {
        int access = ACC_FINAL | ACC_SUPER | ACC_SYNTHETIC;
        String[] implemented = interfaces.toArray(new String[0]);
        writer.visit(V1_8, access, self.getInternalName(), null, "java/lang/Object", implemented);
        for (int i = 0; i < captured.length; i++) {
            String descriptor = captured[i].getDescriptor();
            writer.visitField(ACC_PRIVATE | ACC_FINAL, field(i), descriptor, null, null).visitEnd();
        }
        writeConstructor();
        writeFactory();
        for (String descriptor : descriptors) writeMethod(new Method(method, descriptor));
        writer.visitEnd();
        return writer.toByteArray();
    }

    private static String field(int index) {
        return "captured" + index;
    }

    private GeneratorAdapter adapter(int access, Method method) {
        return new GeneratorAdapter(access, method, null, null, writer);
    }

    private void writeConstructor() {
        GeneratorAdapter code = adapter(0, constructor);
        code.loadThis();
        code.invokeConstructor(Type.getType(Object.class), Method.getMethod("void <init>()"));
        for (int i = 0; i < captured.length; i++) {
            code.loadThis();
            code.loadArg(i);
            code.putField(self, field(i), captured[i]);
        }
        code.returnValue();
        code.endMethod();
    }

    private void writeFactory() {
        GeneratorAdapter code = adapter(ACC_STATIC, new Method(FACTORY, type, captured));
        code.newInstance(self);
        code.dup();
        code.loadArgs();
        code.invokeConstructor(self, constructor);
        code.returnValue();
        code.endMethod();
    }

    /** Calls the body with what was captured, then with the arguments. */
    private void writeMethod(Method signature) {
        GeneratorAdapter code = adapter(ACC_PUBLIC, signature);
        Type owner = Type.getObjectType(body.getOwner());
        boolean makes = body.getTag() == H_NEWINVOKESPECIAL;
        List<Type> wanted = new ArrayList<>(List.of(Type.getArgumentTypes(body.getDesc())));
        if (makes) {
            code.newInstance(owner);
            code.dup();
        } else if (body.getTag() != H_INVOKESTATIC) {
            wanted.add(0, owner);
        }
        for (int i = 0; i < captured.length; i++) {
            code.loadThis();
            code.getField(self, field(i), captured[i]);
            convert(code, captured[i], wanted.get(i));
        }
        Type[] given = signature.getArgumentTypes(), between = exact.getArgumentTypes();
        for (int i = 0; i < given.length; i++) {
            code.loadArg(i);
            convert(code, given[i], between[i]);
            convert(code, between[i], wanted.get(captured.length + i));
        }
        String descriptor = body.getDesc();
        code.visitMethodInsn(opcode(), body.getOwner(), body.getName(), descriptor, body.isInterface());
        returnAs(code, makes ? owner : Type.getReturnType(descriptor), signature.getReturnType());
        code.endMethod();
    }

    private int opcode() {
        switch (body.getTag()) {
            case H_INVOKESTATIC: return INVOKESTATIC;
            case H_INVOKEINTERFACE: return INVOKEINTERFACE;
            case H_NEWINVOKESPECIAL: return INVOKESPECIAL;
            case H_INVOKEVIRTUAL: return INVOKEVIRTUAL;
            default: throw new IllegalStateException(self + ": expected a method, found " + body);
        }
    }

    private void returnAs(GeneratorAdapter code, Type result, Type wanted) {
        if (wanted.getSort() == Type.VOID) {
            if (result.getSize() == 2) code.pop2();
            else if (result.getSize() == 1) code.pop();
        } else {
            convert(code, result, exact.getReturnType());
            convert(code, exact.getReturnType(), wanted);
        }
        code.returnValue();
    }

    /** Boxes, unboxes, widens or casts what is on the stack. */
    private static void convert(GeneratorAdapter code, Type from, Type to) {
        if (from.equals(to)) return;
        if (primitive(from) && primitive(to)) code.cast(from, to);
        else if (primitive(from)) code.valueOf(from);
        else if (primitive(to)) code.unbox(to);
        else code.checkCast(to);
    }

    private static boolean primitive(Type type) {
        return type.getSort() >= Type.BOOLEAN && type.getSort() <= Type.DOUBLE;
    }
}
