import static org.objectweb.asm.Opcodes.*;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import java.util.zip.ZipOutputStream;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Type;
import org.objectweb.asm.commons.GeneratorAdapter;
import org.objectweb.asm.commons.Method;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.InvokeDynamicInsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;

/**
 * Makes a class of each lambda: dx would keep the invokedynamic, and Android has nothing to link it.
 *
 * <p>Usage: {@code java Desugar.java OUT.jar (JAR|FOLDER)...}. All classes go into one jar, in the
 * order of their names. Any other invokedynamic is refused.
 */
public final class Desugar {
    private static final String METAFACTORY = "java/lang/invoke/LambdaMetafactory";
    private static final int FLAG_SERIALIZABLE = 1, FLAG_MARKERS = 2, FLAG_BRIDGES = 4;
    private static final long EPOCH = 315532800000L;

    private final Map<String, byte[]> classes = new TreeMap<>();
    private int lambdas;

    public static void main(String[] args) throws IOException {
        Desugar desugar = new Desugar();
        for (String input : Arrays.asList(args).subList(1, args.length)) desugar.read(Path.of(input));
        desugar.write(Path.of(args[0]));
        System.out.println(desugar.classes.size() + " classes, of them " + desugar.lambdas + " lambdas");
    }

    private void read(Path input) throws IOException {
        if (Files.isDirectory(input)) {
            List<Path> files;
            try (Stream<Path> walk = Files.walk(input)) {
                files = walk.filter(file -> file.toString().endsWith(".class")).collect(Collectors.toList());
            }
            for (Path file : files) add(input.relativize(file).toString(), Files.readAllBytes(file), input);
            return;
        }
        try (ZipFile jar = new ZipFile(input.toFile())) {
            for (ZipEntry entry : Collections.list(jar.entries())) {
                try (InputStream stream = jar.getInputStream(entry)) {
                    add(entry.getName(), stream.readAllBytes(), input);
                }
            }
        }
    }

    private void add(String file, byte[] bytes, Path input) {
        // Classes for newer Java and modules' descriptions are nothing that dx reads.
        if (!file.endsWith(".class") || file.startsWith("META-INF") || file.endsWith("module-info.class")) return;
        ClassNode host = new ClassNode();
        new ClassReader(bytes).accept(host, 0);
        put(host.name, desugared(host) ? written(host) : bytes, input);
    }

    private void put(String name, byte[] bytes, Object from) {
        if (classes.put(name, bytes) != null) throw new IllegalStateException(name + " is there twice, also in " + from);
    }

    private static byte[] written(ClassNode host) {
        // The code's shape stays: maxima and frames are still right.
        ClassWriter writer = new ClassWriter(0);
        host.accept(writer);
        return writer.toByteArray();
    }

    private void write(Path output) throws IOException {
        try (OutputStream file = Files.newOutputStream(output); ZipOutputStream jar = new ZipOutputStream(file)) {
            for (Map.Entry<String, byte[]> made : classes.entrySet()) {
                ZipEntry entry = new ZipEntry(made.getKey() + ".class");
                entry.setTime(EPOCH);
                jar.putNextEntry(entry);
                jar.write(made.getValue());
            }
        }
    }

    /** Replaces every invokedynamic of a class; returns whether there was one. */
    private boolean desugared(ClassNode host) {
        Set<String> bodies = new LinkedHashSet<>();
        int before = lambdas;
        for (MethodNode method : host.methods) {
            for (AbstractInsnNode instruction : method.instructions.toArray()) {
                if (!(instruction instanceof InvokeDynamicInsnNode)) continue;
                InvokeDynamicInsnNode call = (InvokeDynamicInsnNode) instruction;
                Handle body = bodyOf(call, host.name + "." + method.name);
                if (body.getOwner().equals(host.name)) bodies.add(body.getName() + body.getDesc());
                String name = host.name + "$$Lambda$" + (lambdas - before);
                put(name, new Lambda(name, call, opened(body, host)).bytes(), host.name);
                method.instructions.set(call, new MethodInsnNode(INVOKESTATIC, name, "of", call.desc, false));
                lambdas++;
            }
        }
        open(host, bodies);
        return lambdas > before;
    }

    private static Handle bodyOf(InvokeDynamicInsnNode call, String where) {
        if (!call.bsm.getOwner().equals(METAFACTORY)) {
            throw new IllegalStateException(where + ": expected a lambda, found an invokedynamic of " + call.bsm);
        }
        return (Handle) call.bsmArgs[1];
    }

    /** How another class calls a body, once {@link #open} has made it visible. */
    private static Handle opened(Handle body, ClassNode host) {
        if (body.getTag() != H_INVOKESPECIAL) return body;
        if (!body.getOwner().equals(host.name)) {
            throw new IllegalStateException(host.name + ": expected a method of this class, found super::" + body.getName());
        }
        int tag = body.isInterface() ? H_INVOKEINTERFACE : H_INVOKEVIRTUAL;
        return new Handle(tag, body.getOwner(), body.getName(), body.getDesc(), body.isInterface());
    }

    /** Lets the classes of lambdas call bodies that were private, as the host itself then must. */
    private static void open(ClassNode host, Set<String> bodies) {
        boolean inInterface = (host.access & ACC_INTERFACE) != 0;
        Set<String> opened = new LinkedHashSet<>();
        for (MethodNode method : host.methods) {
            if ((method.access & ACC_PRIVATE) == 0 || !bodies.contains(method.name + method.desc)) continue;
            method.access &= ~ACC_PRIVATE;
            if (inInterface) method.access |= ACC_PUBLIC;
            else if ((method.access & ACC_STATIC) == 0 && !method.name.equals("<init>")) method.access |= ACC_FINAL;
            opened.add(method.name + method.desc);
        }
        for (MethodNode method : host.methods) {
            for (AbstractInsnNode instruction : method.instructions) {
                if (instruction.getOpcode() != INVOKESPECIAL) continue;
                MethodInsnNode call = (MethodInsnNode) instruction;
                boolean ours = call.owner.equals(host.name) && opened.contains(call.name + call.desc);
                if (ours && !call.name.equals("<init>")) call.setOpcode(inInterface ? INVOKEINTERFACE : INVOKEVIRTUAL);
            }
        }
    }

    /** The class of one lambda: a field for each captured value, and `of`, which makes an instance. */
    private static final class Lambda {
        private final Type self, type;
        private final Type[] captured;
        private final Method constructor;
        private final Handle body;
        private final Type exact;
        private final String method;
        private final Set<String> interfaces = new LinkedHashSet<>(), descriptors = new LinkedHashSet<>();
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
            if (call.bsm.getName().equals("altMetafactory")) readFurther(Arrays.asList(call.bsmArgs).subList(3, call.bsmArgs.length));
        }

        /** Reads flags, then a count and types for each list that the flags announce. */
        private void readFurther(List<Object> arguments) {
            int flags = (Integer) arguments.get(0), at = 1;
            if ((flags & FLAG_SERIALIZABLE) != 0) interfaces.add("java/io/Serializable");
            if ((flags & FLAG_MARKERS) != 0) {
                int count = (Integer) arguments.get(at++);
                for (int end = at + count; at < end; at++) interfaces.add(((Type) arguments.get(at)).getInternalName());
            }
            if ((flags & FLAG_BRIDGES) != 0) {
                int count = (Integer) arguments.get(at++);
                for (int end = at + count; at < end; at++) descriptors.add(((Type) arguments.get(at)).getDescriptor());
            }
        }

        byte[] bytes() {
            writer.visit(V1_8, ACC_FINAL | ACC_SUPER | ACC_SYNTHETIC, self.getInternalName(), null, "java/lang/Object", interfaces.toArray(new String[0]));
            for (int i = 0; i < captured.length; i++) {
                writer.visitField(ACC_PRIVATE | ACC_FINAL, field(i), captured[i].getDescriptor(), null, null).visitEnd();
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

        private void writeConstructor() {
            GeneratorAdapter code = new GeneratorAdapter(0, constructor, null, null, writer);
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
            GeneratorAdapter code = new GeneratorAdapter(ACC_STATIC, new Method("of", type, captured), null, null, writer);
            code.newInstance(self);
            code.dup();
            code.loadArgs();
            code.invokeConstructor(self, constructor);
            code.returnValue();
            code.endMethod();
        }

        /** Calls the body with what was captured, then with the arguments. */
        private void writeMethod(Method signature) {
            GeneratorAdapter code = new GeneratorAdapter(ACC_PUBLIC, signature, null, null, writer);
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
            code.visitMethodInsn(opcode(), body.getOwner(), body.getName(), body.getDesc(), body.isInterface());
            returnAs(code, makes ? owner : Type.getReturnType(body.getDesc()), signature.getReturnType());
            code.endMethod();
        }

        private int opcode() {
            switch (body.getTag()) {
                case H_INVOKESTATIC: return INVOKESTATIC;
                case H_INVOKEINTERFACE: return INVOKEINTERFACE;
                case H_NEWINVOKESPECIAL: return INVOKESPECIAL;
                case H_INVOKEVIRTUAL: return INVOKEVIRTUAL;
                default: throw new IllegalStateException(self.getClassName() + ": expected a method, found " + body);
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
}
