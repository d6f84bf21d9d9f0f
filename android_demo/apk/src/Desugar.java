import static org.objectweb.asm.Opcodes.*;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
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
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.InvokeDynamicInsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;

/**
 * Makes a class of each lambda: dx would keep the invokedynamic, which Android cannot link.
 *
 * <p>Usage: {@code java Desugar OUT.jar (JAR|FOLDER)...}. All classes go into one jar, in the
 * order of their names. Any other invokedynamic is refused.
 */
public final class Desugar {
    private static final String METAFACTORY = "java/lang/invoke/LambdaMetafactory";
    private static final long EPOCH = 315532800000L;

    private final Map<String, byte[]> classes = new TreeMap<>();
    private int lambdas;

    public static void main(String[] args) throws IOException {
        Desugar desugar = new Desugar();
        for (int i = 1; i < args.length; i++) desugar.read(Path.of(args[i]));
        desugar.write(Path.of(args[0]));
        System.out.println(desugar.classes.size() + " classes, " + desugar.lambdas + " of lambdas");
    }

    private void read(Path input) throws IOException {
        if (Files.isDirectory(input)) {
            List<Path> files;
            try (Stream<Path> walk = Files.walk(input)) {
                files = walk.filter(file -> file.toString().endsWith(".class")).collect(Collectors.toList());
            }
            for (Path file : files) {
                add(input.relativize(file).toString(), Files.readAllBytes(file), input);
            }
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
        // dx reads neither classes for newer Java nor descriptions of modules.
        boolean wanted = file.endsWith(".class") && !file.endsWith("module-info.class");
        if (!wanted || file.startsWith("META-INF")) return;
        ClassNode host = new ClassNode();
        new ClassReader(bytes).accept(host, 0);
        put(host.name, desugared(host) ? written(host) : bytes, input);
    }

    private void put(String name, byte[] bytes, Object from) {
        if (classes.put(name, bytes) != null) {
            throw new IllegalStateException(name + " is there twice, also in " + from);
        }
    }

    private static byte[] written(ClassNode host) {
        // The code's shape stays: maxima and frames are still right.
        ClassWriter writer = new ClassWriter(0);
        host.accept(writer);
        return writer.toByteArray();
    }

    private void write(Path output) throws IOException {
        try (OutputStream file = Files.newOutputStream(output);
                ZipOutputStream jar = new ZipOutputStream(file)) {
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
                String factory = Lambda.FACTORY;
                method.instructions.set(call, new MethodInsnNode(INVOKESTATIC, name, factory, call.desc, false));
                lambdas++;
            }
        }
        open(host, bodies);
        return lambdas > before;
    }

    private static Handle bodyOf(InvokeDynamicInsnNode call, String where) {
        if (!call.bsm.getOwner().equals(METAFACTORY)) {
            throw new IllegalStateException(where + ": expected a lambda, found " + call.bsm);
        }
        return (Handle) call.bsmArgs[1];
    }

    /** How another class calls a body, once {@link #open} has made it visible. */
    private static Handle opened(Handle body, ClassNode host) {
        if (body.getTag() != H_INVOKESPECIAL) return body;
        if (!body.getOwner().equals(host.name)) {
            throw new IllegalStateException(host.name + ": expected an own method, found " + body);
        }
        int tag = body.isInterface() ? H_INVOKEINTERFACE : H_INVOKEVIRTUAL;
        return new Handle(tag, body.getOwner(), body.getName(), body.getDesc(), body.isInterface());
    }

    /** Lets the classes of lambdas call bodies that were private, as the host itself then must. */
    private static void open(ClassNode host, Set<String> bodies) {
        boolean inInterface = (host.access & ACC_INTERFACE) != 0;
        Set<String> opened = new LinkedHashSet<>();
        for (MethodNode method : host.methods) {
            String signature = method.name + method.desc;
            if ((method.access & ACC_PRIVATE) == 0 || !bodies.contains(signature)) continue;
            method.access &= ~ACC_PRIVATE;
            boolean virtual = (method.access & ACC_STATIC) == 0 && !method.name.equals("<init>");
            if (inInterface) method.access |= ACC_PUBLIC;
            else if (virtual) method.access |= ACC_FINAL;
            opened.add(signature);
        }
        for (MethodNode method : host.methods) {
            for (AbstractInsnNode instruction : method.instructions) {
                if (instruction.getOpcode() != INVOKESPECIAL) continue;
                MethodInsnNode call = (MethodInsnNode) instruction;
                boolean ours = call.owner.equals(host.name) && !call.name.equals("<init>");
                if (ours && opened.contains(call.name + call.desc)) {
                    call.setOpcode(inInterface ? INVOKEINTERFACE : INVOKEVIRTUAL);
                }
            }
        }
    }
}
